"""What a worker exchanges inside forward and backward passes: bytes, messages, seconds and the norm of its gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.step_timer import SpanTimer, TimeMark


class ExchangeLog:
    """Count of the exchanges of training steps; those of an evaluation are no part of a step."""

    def __init__(self, timer: SpanTimer) -> None:
        self.timer = timer
        self.sent_bytes, self.rounds = 0, 0
        self.gradient_norms: GradientNorms | None = None
        """norms of the step, while its last micro-batch is on its way"""
        self.mark: TimeMark = 0.0
        """end of the last exchange"""
        self.is_training = False

    @contextmanager
    def count_steps(self) -> Iterator[None]:
        """Count what is exchanged inside."""
        self.is_training = True
        try:
            yield
        finally:
            self.is_training = False

    def begin_exchange(self) -> None:
        """Note the moment at which an exchange begins."""
        self.mark = self.timer.mark()

    def end_exchange(self, traffic: SumTraffic) -> None:
        """Count an exchange since the last call of either method, and its seconds apart from the pass around it.

        Not on a GPU, where streams of their own exchange while others compute.
        """
        if not self.is_training:
            return
        self.sent_bytes += traffic.sent_bytes
        self.rounds += traffic.rounds
        if self.timer.device.type == "cpu":
            self.mark = self.timer.record_inner_span("exchange", "compute", self.mark)

    def pop_traffic(self) -> SumTraffic:
        """Return what has been sent since the last call."""
        traffic = SumTraffic(self.sent_bytes, self.rounds)
        self.sent_bytes, self.rounds = 0, 0
        return traffic
