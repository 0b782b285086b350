"""A stopwatch that reads the device's time, not the time at which work was handed to it."""

import time
from collections import defaultdict

import torch

Mark = float | torch.cuda.Event


class Watch:
    """Marks are cheap; durations between them are summed by name and read once a lap."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spans: list[tuple[str, Mark, Mark]] = []

    def mark(self) -> Mark:
        """This moment: of the clock on a CPU, of the device's stream on a GPU."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, name: str, start: Mark, end: Mark) -> None:
        """Count the time between two marks under `name`."""
        self.spans.append((name, start, end))

    def read(self) -> dict[str, float]:
        """Seconds by name since the last reading, once the device has done all its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds: dict[str, float] = defaultdict(float)
        for name, start, end in self.spans:
            seconds[name] += between(start, end)
        self.spans.clear()
        return seconds


def between(start: Mark, end: Mark) -> float:
    """Seconds from one mark to another of the same watch."""
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(start.elapsed_time(end)) / 1000
    return float(end) - float(start)  # type: ignore[arg-type]
