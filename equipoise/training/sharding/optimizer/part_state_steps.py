"""Steps after which workers send each other the weights that they have updated."""

from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.runs.record import Lap
from equipoise.training.gradient_sums.build_gradient_sync import build_gradient_sync
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep


class PartStateSteps(ExactSteps):
    """Steps of all workers together along the sum of their gradients, of which each takes some weights'."""

    def __init__(
        self,
        config: TrainConfig,
        backward_pass: BackwardPass,
        optimizer: RunOptimizer,
        timer: StepTimer,
        traffic: SumTraffic,
    ) -> None:
        sync = build_gradient_sync(config, optimizer.named_parameters, timer.rank, timer.workers, timer)
        step = GradientStep(config, backward_pass, sync, optimizer, timer)
        super().__init__(step, list_own_micro_batches(config, timer.rank, timer.workers))
        self.weight_traffic = traffic
        """what is sent of updated weights in a step"""

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what its workers exchanged in a step: gradients, then weights."""
        lap = super().describe_exchange(lap)
        sent_bytes, rounds = self.weight_traffic
        return replace(lap, sent_bytes=(lap.sent_bytes or 0) + sent_bytes, rounds=(lap.rounds or 0.0) + rounds)
