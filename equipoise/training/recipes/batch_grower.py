"""Batch that grows on the way, by accumulation: a run takes the same examples in fewer and larger steps.

Smith et al., "Don't Decay the Learning Rate, Increase the Batch Size", 2017, arXiv:1711.00489. What the batch is
follows from the laps of a run alone, so that a resumed run goes on with the batch that an uninterrupted one has.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap, mean_noise_scale
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.steps.exact_steps import ExactSteps

if TYPE_CHECKING:
    from equipoise.training.loop import Training


class BatchGrower:
    """Decides after each lap how many times the batch at the start the next steps take."""

    def __init__(self, config: TrainConfig, max_batch: int) -> None:
        """Let the batch grow as the options say; as the noise scale does up to `max_batch` examples."""
        self.config, self.growth, self.max_batch = config, config.batch_growth, max_batch

    def find_factor(self, laps: Sequence[Lap]) -> int:
        """Return how many times the batch at the start the step after these laps takes."""
        if self.growth.follows_noise:
            return self._follow_noise(laps)
        seen = laps[-1].seen if laps else 0
        return max((stage.factor for stage in self.growth.stages if seen >= stage.examples), default=1)

    def _follow_noise(self, laps: Sequence[Lap]) -> int:
        """Return twice the factor of the last lap where an evaluation finds the noise scale above its batch."""
        if not laps:
            return 1
        batch = laps[-1].global_batch
        noise = mean_noise_scale(list_laps_of_batch(laps)) if laps[-1].metric is not None else None
        grows = noise is not None and noise > batch and 2 * batch <= self.max_batch
        return batch // self.config.global_batch * (2 if grows else 1)

    def find_lap_end(self, seen: int) -> float:
        """Return the number of examples at which the lap after `seen` others ends, because the next stage begins."""
        return min((stage.examples for stage in self.growth.stages if stage.examples > seen), default=float("inf"))

    def resize_steps(self, training: "Training") -> None:
        """Give the next steps of a run the batch that follows from its laps."""
        laps, factor = training.finished_laps, self.find_factor(training.finished_laps)
        config = replace(self.config, grad_accumulation=factor * self.config.grad_accumulation)
        loader = training.loader
        if config.num_micro_batches == loader.order.num_micro_batches:
            return
        others = laps if laps[-1].global_batch != config.global_batch else laps[: -len(list_laps_of_batch(laps))]
        first_step = others[-1].step if others else 0
        loader.order.resize_steps(config.num_micro_batches, laps[-1].seen, training.step, first_step)
        training.timer.config = config
        training.backward_pass.set_config(config)
        assert isinstance(training.steps, ExactSteps)  # noqa: S101 - the options are refused with all others
        training.steps.micro_indices = list_own_micro_batches(config, training.rank, training.workers)
        training.steps.begin(loader, training.step)


def list_laps_of_batch(laps: Sequence[Lap]) -> list[Lap]:
    """Return the last laps, which have the same batch."""
    return list(takewhile(lambda lap: lap.global_batch == laps[-1].global_batch, reversed(laps)))[::-1]
