"""What a worker notes while it trains, made into a lap once all workers have told theirs."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from equipoise.config import Trial
from equipoise.runs.record import Lap
from equipoise.training import sampler as stream
from equipoise.training.gradient_norms import Norms

Mark = float | torch.cuda.Event


class Meter:
    """A stopwatch that reads the device's time, not that at which work was handed to it, and the gradient norms.

    Marks are cheap; what lies between them is summed by name, and read once a lap.
    """

    def __init__(self, trial: Trial, rank: int, workers: int, device: torch.device) -> None:
        self.trial, self.rank, self.workers, self.device = trial, rank, workers, device
        self.spans: list[tuple[str, Mark, Mark]] = []
        self.norms = Norms()

    def mark(self) -> Mark:
        """This moment: of the clock on a CPU, of the device's stream on a GPU."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, name: str, start: Mark) -> Mark:
        """Count the time since a mark under `name`; the mark that ends it."""
        end = self.mark()
        self.spans.append((name, start, end))
        return end

    def lap(self, losses: Tensor, step: int, lr: float, summed: Callable[[Tensor], Tensor]) -> tuple[Lap, Tensor]:
        """The lap that ended at `step`, and the mean loss of each of its steps.

        `losses` are this worker's parts of these means; `summed` adds a tensor up over all workers.
        """
        own = self._seconds()
        local, total, draws = self.norms.take()
        columns = [own["lap"] - own["probe"], own["data"], own["compute"], own["exchange"], local, total]
        table = torch.zeros(self.workers, len(columns), dtype=torch.float64)
        table[self.rank] = torch.tensor(columns, dtype=torch.float64)
        shared = summed(torch.cat([losses.double(), table.flatten().to(self.device)])).cpu()
        losses, table = shared[: len(losses)], shared[len(losses) :].view_as(table)
        seconds, data, compute, exchange = table[:, :4].amax(0).tolist()
        lap = Lap(
            step=step,
            steps=len(losses),
            seen=step * self.trial.global_batch,
            examples=len(losses) * self.trial.global_batch,
            workers=self.workers,
            lr=lr,
            loss=float(losses.mean()),
            seconds=seconds,
            data_seconds=data,
            compute_seconds=compute,
            exchange_seconds=exchange,
            **(self._noise(table[:, 4:], draws) if draws else {}),
        )
        return lap, losses

    def _seconds(self) -> dict[str, float]:
        """Seconds by name since the last reading, once the device has done all its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds: dict[str, float] = defaultdict(float)
        for name, start, end in self.spans:
            seconds[name] += between(start, end)
        self.spans.clear()
        return seconds

    def _noise(self, norms: Tensor, draws: int) -> dict[str, Any]:
        """What a lap tells of the noise scale, from each worker's sums of local and total norms."""
        if not norms.isfinite().all():
            return {}
        places = self.trial.places
        shares = torch.tensor([len(stream.share(places, rank, self.workers)) for rank in range(self.workers)])
        small, big = float(self.trial.batch // 2), self.trial.batch // 2 * 2  # one worker compares halves
        if self.workers > 1:  # what was summed is a worker's part of the mean: scaled here to the worker's own mean
            norms[:, 0] *= (places / shares) ** 2
            small, big = self.trial.batch / float((1 / shares).mean()), self.trial.global_batch
        local, total = (norms.mean(0) / draws).tolist()
        return {"local_norm": local, "total_norm": total, "local_batch": small, "total_batch": big, "draws": draws}


def between(start: Mark, end: Mark) -> float:
    """Seconds from one mark to another of the same meter."""
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(start.elapsed_time(end)) / 1000
    return float(end) - float(start)  # type: ignore[arg-type]
