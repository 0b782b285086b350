"""The fastest number of workers for each global batch, by the fitted step times."""

import math
from collections.abc import Collection

from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings


class FastestWorkers:
    """For each global batch, the number of workers with the shortest step, and its seconds."""

    def __init__(self, step_time_fit: StepTimeFit) -> None:
        self.seconds_by_batch: dict[int, float] = {}
        self.workers_by_batch: dict[int, int] = {}
        settings = StepSettings.from_table(step_time_fit.rows.sort_values(["workers", "batch"]))
        for workers, batch, seconds in zip(
            *(column.tolist() for column in (*settings[1:], step_time_fit.shrunk_seconds(settings))), strict=True
        ):
            global_batch = int(workers * batch)
            if seconds < self.seconds_by_batch.get(global_batch, math.inf):
                self.seconds_by_batch[global_batch] = seconds
                self.workers_by_batch[global_batch] = int(workers)

    def step_seconds(self, global_batch: int) -> float:
        """Return the seconds of a step at a global batch, on its fastest workers."""
        return self.seconds_by_batch[global_batch]

    def keep_batches(self, batches: Collection[int]) -> None:
        """Forget all other global batches."""
        self.seconds_by_batch = {batch: self.seconds_by_batch[batch] for batch in batches}
        self.workers_by_batch = {batch: self.workers_by_batch[batch] for batch in batches}
