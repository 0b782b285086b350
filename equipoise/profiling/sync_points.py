"""Lines of a user's code at which a worker waits for others in every step, found with the seconds of each call.

Collective calls pass methods of torch's process groups, which are watched while a block of steps runs; the line is that
of the innermost frame outside of torch and of this library, whose own exchange of gradients is no such point. What
torch calls by itself, as DistributedDataParallel does for gradients, does not pass Python and is not seen.
"""

import functools
import linecache
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from equipoise.profiling.profile_report import SyncPoint

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
}
"""methods of a process group, and the functions of torch.distributed that users call"""
TORCH_FOLDER = str(Path(torch.__file__).parent) + "/"
LIBRARY_FOLDER = str(Path(__file__).parents[1]) + "/"
STANDARD_FOLDER = sysconfig.get_path("stdlib") + "/"


class CallPlace(NamedTuple):
    """Line of code that waits, and what it calls."""

    operation: str
    file: str
    line: int


class SyncWatch:
    """Watch of the collective calls of this process."""

    def __init__(self, find_part: Callable[[], str | None] = lambda: None) -> None:
        self.find_part = find_part
        self.calls: list[list[Any]] = []
        """place and seconds of each call, in the order of time"""
        self.seconds_by_part: dict[str | None, float] = defaultdict(float)
        self.pending: dict[int, tuple[Any, list[Any]]] = {}  # work that a call returned and nobody has waited for

    @contextmanager
    def watch(self) -> Iterator["SyncWatch"]:
        """Watch collective calls for the length of the block."""
        if not dist.is_available():
            yield self
            return
        group_methods = {name: vars(dist.ProcessGroup)[name] for name in COLLECTIVES if name in vars(dist.ProcessGroup)}
        wait = vars(dist.Work)["wait"]
        for name in group_methods:
            setattr(dist.ProcessGroup, name, self._watch_call(name, getattr(dist.ProcessGroup, name)))
        dist.Work.wait = self._watch_wait(dist.Work.wait)  # type: ignore[method-assign]
        try:
            yield self
        finally:
            for name, method in group_methods.items():
                setattr(dist.ProcessGroup, name, method)  # as it was defined: unbound
            dist.Work.wait = wait  # type: ignore[method-assign]
            self.pending.clear()

    def add_call(self, place: CallPlace, start: float) -> list[Any]:
        """Add a call that has lasted since `start`, and return its entry."""
        entry = [place, 0.0]
        self.calls.append(entry)
        self._add_seconds(entry, start)
        return entry

    def _watch_call(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            place = find_user_line(sys._getframe(1), COLLECTIVES[name])
            if place is None:
                return method(*arguments, **keywords)
            start = time.perf_counter()
            work = method(*arguments, **keywords)
            entry = self.add_call(place, start)
            if work is not None:
                self.pending[id(work)] = work, entry
            return work

        return call

    def _watch_wait(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wait(work: Any, *arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            result = method(work, *arguments, **keywords)
            _, entry = self.pending.pop(id(work), (None, None))
            if entry is not None:
                self._add_seconds(entry, start)
            return result

        return wait

    def _add_seconds(self, entry: list[Any], start: float) -> None:
        seconds = time.perf_counter() - start
        entry[1] += seconds
        self.seconds_by_part[self.find_part()] += seconds


def find_user_line(frame: FrameType | None, operation: str) -> CallPlace | None:
    """Return the innermost line outside of torch and Python's own library; None if it lies in this library."""
    while frame is not None:
        file = frame.f_code.co_filename
        is_standard = file.startswith(STANDARD_FOLDER) and "site-packages" not in file
        if file.startswith(LIBRARY_FOLDER):
            return None
        if not (file.startswith(TORCH_FOLDER) or is_standard or file.startswith("<")):
            return CallPlace(operation, file, frame.f_lineno)
        frame = frame.f_back
    return None


def summarize_calls(calls_by_worker: Sequence[Sequence[Sequence[Any]]], steps: int) -> tuple[SyncPoint, ...]:
    """Return the synchronisation points of all workers' calls in so many steps, the longest first.

    Calls in a row take as long as on the worker that waits least. Where workers make different calls, each point has
    the seconds of the worker that waits least over all of its own.
    """
    counts: Counter[CallPlace] = Counter()
    for calls in calls_by_worker:
        counts |= Counter(CallPlace(*place) for place, _ in calls)  # of the worker that makes most
    seconds: list[dict[CallPlace, list[float]]] = []
    for calls in calls_by_worker:
        seconds.append(defaultdict(list))
        for place, took in add_up_rows(calls, steps):
            seconds[-1][place].append(took)
    points = []
    for place in dict.fromkeys(place for worker in seconds for place in worker):
        rows = [worker[place] for worker in seconds if place in worker]
        is_common = len(rows) == len(seconds) and len({len(row) for row in rows}) == 1
        shortest = sum(map(min, zip(*rows, strict=True))) if is_common else min(map(sum, rows))
        points.append(
            SyncPoint(
                operation=place.operation,
                file=place.file,
                line=place.line,
                code=linecache.getline(place.file, place.line).strip(),
                calls=counts[place] / steps,
                seconds=shortest / steps,
                longest_seconds=max(map(sum, rows)) / steps,
            )
        )
    return tuple(sorted(points, key=lambda point: -point.seconds))


def add_up_rows(calls: Sequence[Sequence[Any]], steps: int) -> Iterator[tuple[CallPlace, float]]:
    """Yield the calls of a worker, those of one line that follow each other in a step added up.

    Without them, workers that are slow in turn wait for each other once, after the step, and not at each of the calls.
    """
    calls_in_step, rest = divmod(len(calls), steps)
    length = 1 if rest or not calls_in_step else calls_in_step
    for start in range(0, len(calls), length):
        for place, row in groupby(calls[start : start + length], key=lambda call: CallPlace(*call[0])):
            yield place, sum(seconds for _, seconds in row)
