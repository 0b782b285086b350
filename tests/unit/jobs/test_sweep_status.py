"""Status line of a running sweep."""

import pandas as pd

from jobs.cli.sweep_status import SweepStatus


def test_status_has_no_best_trial_before_one_has_ended(capsys):
    SweepStatus({}, float("inf")).show(pd.DataFrame(), 2, [])
    assert capsys.readouterr().out == "trials 0 done, 2 running; best so far none yet\n"
