"""What a sweep shows while it goes on."""

import pandas as pd

from jobs.cli.sweep_status import SweepStatus


def test_before_any_trial_has_ended_there_is_no_best_one(capsys):
    SweepStatus({}, float("inf")).show(pd.DataFrame(), 2, [])
    assert capsys.readouterr().out == "trials 0 done, 2 running; best so far none yet\n"
