"""Run the trials of a search: a workload's through Ray Tune, those of a command on workers of their own."""

import sys
from pathlib import Path

from ray.tune import Callback

from jobs.ray_tune.command_trials import CommandTrials
from jobs.ray_tune.multi_worker_trial import release_placement_groups_of_job
from jobs.ray_tune.tuner import PruneStopper, SearchAdapter


def run_trials(adapter: SearchAdapter, callbacks: list[Callback], *, prune: bool) -> None:
    """Run the trials that a search suggests until it has ended or the time is up."""
    sweep_trials = adapter.sweep_trials
    if sweep_trials.base.command:
        if callbacks:
            print("note: --track does not show the trials of a command; their records have the same", file=sys.stderr)
        CommandTrials(adapter, str(Path.cwd()), prune).run()
        return
    tuner = sweep_trials.build_tuner(adapter, PruneStopper(adapter) if prune else None, callbacks)
    try:
        tuner.fit()
    except RuntimeError as error:
        # Tune has ended, and cannot list a trial that had no time to start; the adapter has the results of the others
        if "trial_dir_name" not in str(error):
            raise
    if sweep_trials.real_workers:
        release_placement_groups_of_job()
