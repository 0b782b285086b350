"""Trials of a sweep whose time is up between the suggestion of a trial and its start."""

import sys
import time
from pathlib import Path

import ray

from equipoise.config import TrainConfig
from equipoise.planning.search import GridSearch
from equipoise.type_aliases import JsonObject
from jobs.cli.sweep_status import SweepStatus
from jobs.ray_tune.run_trials import run_trials
from jobs.ray_tune.tuner import SearchAdapter, SweepTrials


class LateSearchAdapter(SearchAdapter):
    """Adapter that suggests its second trial at once, and returns it when the time is up."""

    def suggest(self, trial_id: str) -> JsonObject | str | None:
        """Return the trial that the search suggests; the second one late."""
        config = super().suggest(trial_id)
        if self.setting_results and not isinstance(config, str):
            self.sweep_trials.deadline = time.time()
            time.sleep(0.01)
        return config


def main() -> None:
    """Run the search in the folder that is given, and print how many trials ended."""
    folder = Path(sys.argv[1]) / "trials"
    folder.mkdir()
    ray.init()
    base = TrainConfig(workload="digits", max_examples=256).with_defaults()
    trials = SweepTrials(base=base, folder=folder, workers_by_batch={16: 1}, slots=1)
    search = GridSearch([16], 0.05, lambda batch: batch / 1000, num_seeds=2)
    with SweepStatus(trials.workers_by_batch, trials.deadline) as status:
        adapter = LateSearchAdapter(search, trials, status)
        run_trials(adapter, [], prune=True)
        adapter.add_trials_that_ended_late()
    print(f"{len(adapter.finished_trials)} trial ended, {len(adapter.running_trials)} are running")


if __name__ == "__main__":
    main()
