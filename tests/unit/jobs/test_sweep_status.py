"""Status line of a running sweep, and its table on a terminal."""

import io
import pickle
import re
import time

import pandas as pd
import pytest
from rich.console import Console

from equipoise.planning.search import SettingResult
from jobs.cli.sweep_status import SweepStatus, build_key_value_table
from tests.support.terminal import open_terminal

NO_DEADLINE = float("inf")
BEST = SettingResult(global_batch=128, lr=0.05, seconds=12.345, log_error=0.1, num_seeds=3)
SECOND = SettingResult(global_batch=64, lr=0.1, seconds=20.0, log_error=0.1, num_seeds=1)
WORKERS_BY_BATCH = {128: 4, 64: 2}
TWO_TRIALS = pd.DataFrame({"seed": [0, 1]})


@pytest.fixture
def read_status(capsys):
    """Return a function that shows a status elsewhere than on a terminal and returns its facts by name."""

    def show_status(results=(), deadline=NO_DEADLINE):
        SweepStatus(WORKERS_BY_BATCH, deadline).show(TWO_TRIALS, 3, list(results))
        [line] = capsys.readouterr().out.splitlines()
        names = ("trials", "best so far", "runner-up", "left")
        return {name: fact[len(name) + 1 :] for fact in line.split("; ") for name in names if fact.startswith(name)}

    return show_status


def test_status_has_no_best_trial_before_one_has_ended(capsys):
    SweepStatus({}, NO_DEADLINE).show(pd.DataFrame(), 2, [])
    assert capsys.readouterr().out == "trials 0 done, 2 running; best so far none yet\n"


def test_status_shows_the_two_best_settings(read_status):
    best, second = "4 x 32 at lr 0.05: 12.3 s (3 seeds)", "2 x 32 at lr 0.1: 20 s (1 seed)"
    assert read_status([BEST]) == {"trials": "2 done, 3 running", "best so far": best}
    assert read_status([BEST, SECOND]) == {
        "trials": "2 done, 3 running",
        "best so far": best,
        "runner-up": second,
    }
    assert read_status([BEST, SECOND, BEST._replace(lr=1.0)])["runner-up"] == second


def test_setting_that_missed_the_target_says_so():
    status = SweepStatus(WORKERS_BY_BATCH, NO_DEADLINE)
    unreached = BEST._replace(seconds=float("inf"))
    assert status.format_setting(unreached) == "4 x 32 at lr 0.05: target not reached yet (3 seeds)"


def test_time_left_ends_at_the_deadline(read_status):
    seconds = int(read_status(deadline=time.time() + 5000)["left"].removesuffix(" s"))
    assert 4000 < seconds <= 5000
    assert read_status(deadline=time.time() - 5000)["left"] == "0 s"
    assert "left" not in read_status()


def test_terminal_shows_a_table_that_is_updated_in_place(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with open_terminal("stdout") as read_output:
        with SweepStatus(WORKERS_BY_BATCH, NO_DEADLINE) as status:
            assert "\x1b[?25l" in read_output()  # the cursor is hidden
            status.show(TWO_TRIALS, 3, [BEST])
            first = read_output()
            assert re.search(r"trials +2 done, 3 running", first) and "4 x 32" in first and ";" not in first
            status.show(TWO_TRIALS, 1, [BEST, SECOND])
            second = read_output()
            assert re.search(r"trials +2 done, 1 running", second) and "2 x 32" in second
            assert "\x1b[1A" in second  # the cursor goes up to the first line
        assert "\x1b[?25h" in read_output()


def test_status_is_pickled_without_its_terminal():
    with open_terminal("stdout"), SweepStatus(WORKERS_BY_BATCH, 5.0) as status:
        copy = pickle.loads(pickle.dumps(status))  # noqa: S301 - our own
        assert status.live is not None and copy.live is None
    assert (copy.workers_by_batch, copy.deadline) == (WORKERS_BY_BATCH, 5.0)


def test_facts_are_aligned_beside_their_names():
    output = io.StringIO()
    Console(file=output, width=40).print(build_key_value_table({"trials": "2 done", "best so far": "none yet"}))
    assert [line.rstrip() for line in output.getvalue().splitlines()] == [
        "trials       2 done",
        "best so far  none yet",
    ]


def test_lines_without_a_terminal_come_when_the_best_setting_changes(capsys):
    status = SweepStatus(WORKERS_BY_BATCH, NO_DEADLINE)
    for results in ([BEST], [BEST._replace(num_seeds=3)], [SECOND, BEST], [SECOND]):
        status.show(TWO_TRIALS, 1, results)
    assert capsys.readouterr().out.count("\n") == 2
