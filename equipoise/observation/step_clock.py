"""Time of optimizer steps by part, from the events of a loop that somebody else wrote.

    ... step | data | forward, backward | exchange | data | forward, backward | exchange | clipping, step | data ...

What follows a backward pass is computing if the optimizer steps next, and waiting for data if a forward pass comes
next, as with gradient accumulation. All that lies between a step and the next forward pass is waiting for data, unless
the clock was paused there, by an evaluation for example: then it is not counted.

Backward passes need not be noted in steps that are not timed by part: then the step is one span, from its first forward
pass to its end.
"""

from typing import Literal

import torch

from equipoise.observation.step_sampling import UNTIMED_SPANS, StepSampling
from equipoise.training.step_timer import SpanTimer, TimeMark


class StepClock:
    """Clock of the steps of one worker; `has_exchange` says whether backward passes end in an exchange of gradients."""

    def __init__(self, device: torch.device, has_exchange: bool, parts_every: int = 1) -> None:
        self.timer, self.has_exchange = SpanTimer(device), has_exchange
        self.sampling = StepSampling(parts_every)
        self.state: Literal["paused", "waiting", "computing"] = "paused"
        self.last_mark: TimeMark = 0.0
        self.computed_mark: TimeMark | None = None
        """latest gradient of the backward pass that goes on"""
        self.pause_mark: TimeMark | None = None
        """pause in a step whose backward passes are not noted: it counts if a forward pass follows it"""
        self.forwards = self.backwards = self.num_finished_spans = self.steps = 0
        self.span_names = self.sampling.choose_spans(0)
        self.is_timed = True
        """whether the step that goes on is timed by part"""

    def begin_forward(self) -> None:
        """Note that a forward pass starts: what lies since the last backward pass or step was waiting for data."""
        if self.state == "waiting":
            name = self.span_names["data"] if self.forwards else "data"
            self.last_mark = self.timer.record_span(name, self.last_mark)
        elif self.state == "paused":
            self.last_mark = self.timer.mark()
        elif self.pause_mark is not None:
            self.timer.spans.append((self.span_names["compute"], self.last_mark, self.pause_mark))
            self.last_mark, self.pause_mark = self.timer.mark(), None
        self.state = "computing"
        self.forwards += 1

    def end_computing(self) -> None:
        """Note that a backward pass has computed a gradient of this worker; the last call in a pass counts."""
        if self.is_timed:
            self.computed_mark = self.timer.mark()

    def end_unseen_computing(self) -> None:
        """Note that a backward pass has computed the gradients of this worker, if none of them was noted."""
        if self.computed_mark is None:
            self.end_computing()

    def end_backward(self) -> None:
        """Note that a backward pass ends, after the exchange of gradients if there is one."""
        if self.state == "computing":
            names = self.span_names
            if self.has_exchange and self.computed_mark is not None:
                self.timer.spans.append((names["compute"], self.last_mark, self.computed_mark))
                self.last_mark = self.timer.record_span(names["exchange"], self.computed_mark)
            else:
                self.last_mark = self.timer.record_span(names["compute"], self.last_mark)
            self.backwards += 1
            self.state = "waiting"
        self.computed_mark = self.pause_mark = None

    def end_step(self) -> int:
        """Note that the optimizer has stepped, and return the micro-batches behind the step; 0 if none was seen.

        They are the forward passes where backward passes were not noted.
        """
        # several passes through the model before one backward pass are one micro-batch, and so is one with two losses
        micro_batches = min(self.forwards, self.backwards or self.forwards)
        if micro_batches and self.state != "paused":
            self.last_mark = self.timer.record_span(self.span_names["compute"], self.last_mark)
        self.forwards = self.backwards = 0
        self.pause_mark = None
        self.num_finished_spans = len(self.timer.spans)
        self.state = "waiting" if micro_batches else "paused"
        if micro_batches:
            self.steps += 1
            self.choose_spans()
        return micro_batches

    def choose_spans(self) -> None:
        """Choose whether the next step is timed by part."""
        self.span_names = self.sampling.choose_spans(self.steps)
        self.is_timed = self.span_names is not UNTIMED_SPANS

    def pop_seconds(self) -> dict[str, float]:
        """Return the seconds of the steps since the last call by part, without those of a step that has not ended."""
        del self.timer.spans[self.num_finished_spans :]
        self.num_finished_spans = 0
        return self.sampling.sum_parts(self.timer.pop_seconds())

    def pause(self) -> None:
        """Stop the clock until the next forward pass, and do not count what lies since the last step either."""
        if self.state == "waiting":
            self.state = "paused"
        elif self.state == "computing" and not self.is_timed and self.pause_mark is None:
            self.pause_mark = self.timer.mark()

    def skip_to_now(self) -> None:
        """Do not count the time since the last event."""
        self.last_mark = self.timer.mark()
