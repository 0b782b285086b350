"""When the trials of a sweep end for lack of time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.schedulers import FIFOScheduler


@dataclass(frozen=True)
class TimeReserve:
    """Seconds at the end of a sweep's budget that trials leave to what comes after them, where that needs any."""

    deadline: float
    """Unix time at which trials are stopped where nothing comes after them"""
    is_needed: Callable[[pd.DataFrame], bool]
    """tells from the finished trials whether something does"""


class DeadlineScheduler(FIFOScheduler):
    """Scheduler that starts pending trials, and stops all trials when the time is up.

    A stopper hears of a trial only when it reports, which a trial does not do in the middle of a long step. Tune's own
    scheduler looks for pending trials among all trials of the sweep, this one among the live ones.
    """

    def __init__(self, time_is_up: Callable[[], bool]) -> None:
        super().__init__()
        self.time_is_up = time_is_up

    def choose_trial_to_run(self, tune_controller: Any) -> tune.experiment.Trial | None:
        """Return a trial that has not started yet, or None."""
        live_trials = list(tune_controller.get_live_trials())
        if self.time_is_up():
            for trial in live_trials:
                tune_controller.stop_trial(trial)
            return None
        return next((trial for trial in live_trials if trial.status == trial.PENDING), None)
