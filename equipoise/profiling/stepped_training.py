"""Training whose steps are taken in blocks to be timed, without evaluations or laps."""

import math
from dataclasses import replace

import torch
import torch.distributed as dist

from equipoise.config import TrainConfig
from equipoise.number_bounds import MAX_COUNT, MIN_LEARNING_RATE
from equipoise.registries.recipe_registry import DEFAULT_BASE_BATCH
from equipoise.training.loop import Training
from equipoise.training.sampler import BATCHES_AHEAD
from equipoise.training.torch_state import flush_denormals
from equipoise.workloads import Workload


class SteppedTraining:
    """Training at its first steps; all workers build it and call its methods together."""

    def __init__(self, config: TrainConfig, workload: Workload, device: torch.device) -> None:
        # with the smallest learning rate the weights hardly move and the loss stays finite
        config = replace(config, lr=MIN_LEARNING_RATE, target=None, max_examples=MAX_COUNT)
        # neither a rule for the rate nor a batch that grows between laps has a part in a step
        config = replace(config, scaling_rule="none", base_batch=DEFAULT_BASE_BATCH, grow_batch="none")
        if config.workers == 1:  # which measures the noise scale by itself, in steps that no clock counts
            config = replace(config, noise_scale_every=0)
        self.training = Training(config, replace(workload, target=None), device)
        self.training.steps.begin(self.training.loader, 0)
        self.training.prepare_all_reduce()

    @property
    def interval(self) -> int:
        """Steps from one exchange to the next, which a block has whole numbers of."""
        return self.training.steps.interval

    @property
    def steps_read_ahead(self) -> int:
        """Steps whose batches its readers may have ready after a pause of this training; 0 where nothing is read."""
        config = self.training.config
        if self.training.loader.train_split.is_in_memory:
            return 0
        fewest = max(1, config.num_micro_batches // self.training.workers)  # of a worker: all take as many steps
        steps = math.ceil(BATCHES_AHEAD * config.threads / fewest)
        return math.ceil(steps / self.interval) * self.interval

    def take_block(self, count: int) -> dict[str, float]:
        """Take steps, and return the mean seconds of a step on this worker by span, `lap` for all of it."""
        timer = self.training.timer
        timer.pop_seconds()
        if self.training.workers > 1:
            dist.barrier()  # else a block would include the wait for a worker that starts late
        start = timer.mark()
        with flush_denormals():
            self.training.take_steps(count)
        timer.record_span("lap", start)
        timer.gradient_norms.pop_sums()
        seconds = timer.pop_seconds()
        return {name: value / count for name, value in seconds.items()}


def gather_rows(values: list[float], device: torch.device) -> list[list[float]]:
    """Return the numbers of each worker, in the order of ranks, on all of them."""
    if not (dist.is_available() and dist.is_initialized()):
        return [values]
    table = torch.zeros(dist.get_world_size(), len(values), dtype=torch.float64, device=device)
    table[dist.get_rank()] = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(table)
    rows: list[list[float]] = table.tolist()
    return rows


def gather_objects(value: object) -> list[object]:
    """Return an object of each worker, in the order of ranks, on all of them."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    objects: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(objects, value)
    return objects
