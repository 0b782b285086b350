"""Measurements of a worker while it trains, combined over all workers into a lap."""

import operator
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.energy_meters.worker_meter import open_worker_meter
from equipoise.runs.record import Lap
from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.sampler import rank_micro_batches

TimeMark = float | torch.cuda.Event
LAP_SPANS = "data", "compute", "exchange", "encode"
MIN_SPEED_RATIO = 1.1  # of the slowest to the fastest worker, from which a lap has the seconds of each


class SpanTimer:
    """Timer by the device's clock, not by when work was queued.

    Marks are cheap; the spans between them are summed by name and read once per lap.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spans: list[tuple[str, TimeMark, TimeMark]] = []
        self.taken_spans: list[tuple[str, TimeMark, TimeMark]] = []  # from those of the name that lie around them
        self.mark: Callable[[], TimeMark] = (
            partial(record_event, device) if device.type == "cuda" else time.perf_counter
        )
        """function that returns the current moment: of the clock on a CPU, of the device's stream on a GPU"""

    def record_span(self, name: str, start: TimeMark) -> TimeMark:
        """Record the time since mark `start` under `name`, and return the mark that ends it."""
        end = self.mark()
        self.spans.append((name, start, end))
        return end

    def record_inner_span(self, name: str, outer: str, start: TimeMark) -> TimeMark:
        """Record the time since mark `start` under `name`, and take it from the span `outer` that it lies in."""
        end = self.record_span(name, start)
        self.taken_spans.append((outer, start, end))
        return end

    def pop_seconds(self) -> dict[str, float]:
        """Return the seconds by span name since the last call, after the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds: dict[str, float] = defaultdict(float)
        elapsed: Callable[[Any, Any], float] = elapsed_event_seconds if self.device.type == "cuda" else operator.sub
        for name, start, end in self.spans:
            seconds[name] += elapsed(end, start)
        for name, start, end in self.taken_spans:
            seconds[name] -= elapsed(end, start)
        self.spans.clear()
        self.taken_spans.clear()
        return seconds


class StepTimer(SpanTimer):
    """Timer of a worker's steps, and holder of its gradient norms."""

    def __init__(self, config: TrainConfig, rank: int, workers: int, device: torch.device) -> None:
        super().__init__(device)
        self.config, self.rank, self.workers = config, rank, workers
        self.gradient_norms = GradientNorms()
        self.peak_bytes: int | None = None
        """largest number of bytes in this worker's tensors during the lap; None where it was not measured"""
        self.meter = open_worker_meter(device, rank)

    def begin_lap(self) -> TimeMark:
        """Begin to count the energy of a lap, and return the mark at its start."""
        self.meter.begin()
        return self.mark()

    def finish_lap(
        self, losses: Tensor, step: int, lr: float, all_reduce_sum: Callable[[Tensor], Tensor]
    ) -> tuple[Lap, Tensor]:
        """Return the lap that ended at `step`, and the mean loss of each of its steps.

        `losses` are this worker's parts of these means; `all_reduce_sum` sums a tensor over all workers.
        """
        seconds_by_span = self.pop_seconds()
        local, total, draws = self.gradient_norms.pop_sums()
        lap_seconds = seconds_by_span["lap"] - seconds_by_span["probe"]
        has_encoded = "encode" in seconds_by_span
        joules = self.meter.read_joules() * lap_seconds / seconds_by_span["lap"]  # without those of the noise scale
        columns = [lap_seconds, *(seconds_by_span[name] for name in LAP_SPANS)]
        columns += [joules, self.peak_bytes or 0, local, total]
        table = torch.zeros(self.workers, len(columns), dtype=torch.float64)
        table[self.rank] = torch.tensor(columns, dtype=torch.float64)
        shared = all_reduce_sum(torch.cat([losses.double(), table.flatten().to(self.device)])).cpu()
        losses, table = shared[: len(losses)], shared[len(losses) :].view_as(table)
        # asynchronous workers have different work in a lap: the largest parts would be those of different workers
        is_shared_work = not self.config.sync_method.staleness
        seconds, *parts = (table[:, :-4].amax(0) if is_shared_work else table[:, :-4].mean(0)).tolist()
        data, compute, exchange, encode = parts
        seconds_by_worker = table[:, 1 + LAP_SPANS.index("compute")].tolist() if is_shared_work else [compute]
        lap = Lap(
            step=step,
            steps=len(losses),
            seen=step * self.config.global_batch,
            examples=len(losses) * self.config.global_batch,
            workers=self.workers,
            lr=lr,
            loss=float(losses.mean()),
            seconds=seconds,
            data_seconds=data,
            compute_seconds=compute,
            seconds_by_worker=tuple(seconds_by_worker) if compute > MIN_SPEED_RATIO * min(seconds_by_worker) else (),
            exchange_seconds=exchange,
            encode_seconds=encode if has_encoded else None,
            joules=self._sum_joules(float(table[:, -4].sum()), seconds),
            peak_bytes=int(table[:, -3].max()) or None,
        )
        return self._add_gradient_norms(lap, table[:, -2:], draws) if draws else lap, losses

    def _sum_joules(self, measured: float, seconds: float) -> float | None:
        """Return the joules of a lap of all workers: by --watts, as measured, or None where no machine tells them."""
        if self.config.watts is not None:
            return self.config.watts * seconds * self.workers
        return measured if measured > 0 else None

    def _add_gradient_norms(self, lap: Lap, norms: Tensor, draws: int) -> Lap:
        """Return the lap with the means of each worker's sums of local and total norms, if they are finite."""
        if not norms.isfinite().all():
            return lap
        micros = self.config.num_micro_batches
        shares = torch.tensor([len(rank_micro_batches(micros, rank, self.workers)) for rank in range(self.workers)])
        if self.gradient_norms.is_of_micro_batch:
            shares = torch.ones_like(shares)
        small, big = (
            float(self.config.batch_size // 2),
            self.config.batch_size // 2 * 2,
        )  # one worker compares the halves of a batch
        if self.workers > 1:  # a worker summed its part of the global mean: scale it to the worker's own mean
            norms[:, 0] *= (micros / shares) ** 2
            small, big = self.config.batch_size / float((1 / shares).mean()), self.config.global_batch
        local, total = (norms.mean(0) / draws).tolist()
        return replace(lap, local_norm=local, total_norm=total, local_batch=small, total_batch=big, draws=draws)


def record_event(device: torch.device) -> torch.cuda.Event:
    """Return an event at the end of what the current stream of a GPU has been given to do."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def elapsed_event_seconds(end: torch.cuda.Event, start: torch.cuda.Event) -> float:
    """Return the seconds between two events of a GPU."""
    return float(start.elapsed_time(end)) / 1000
