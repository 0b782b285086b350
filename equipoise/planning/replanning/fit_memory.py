"""Memory of fits and settings, so that a plan within other limits is built without fitting the same tables again.

Fits take a second, everything else of a plan some milliseconds. A fit is found again by the contents of its tables,
and what is built from fits by these objects.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any, TypeVar

import pandas as pd

MAX_REMEMBERED_RESULTS = 512  # the oldest are forgotten: at most 10 kB each, but for a few fits
ResultT = TypeVar("ResultT")


class FitMemory:
    """What was computed before, by what it was computed from; threads may share it."""

    def __init__(self, max_results: int = MAX_REMEMBERED_RESULTS) -> None:
        self.max_results, self._lock = max_results, RLock()
        self._results: OrderedDict[Hashable, tuple[Sequence[object], Any]] = OrderedDict()

    def recall(self, key: Hashable, sources: Sequence[object], compute: Callable[[], ResultT]) -> ResultT:
        """Return what was computed before from the same key and source objects, or compute it now."""
        full_key = (key, *map(id, sources))
        with self._lock:
            if full_key not in self._results:
                # with its sources, whose ids no other objects can have while they live
                self._results[full_key] = sources, compute()
            self._results.move_to_end(full_key)
            result: ResultT = self._results[full_key][1]
            while len(self._results) > self.max_results:
                self._results.popitem(last=False)
            return result


def recall_result(
    memory: FitMemory | None, key: Hashable, sources: Sequence[object], compute: Callable[[], ResultT]
) -> ResultT:
    """Return a result from memory; without a memory compute it."""
    return compute() if memory is None else memory.recall(key, sources, compute)


def digest_table(table: pd.DataFrame | None) -> bytes:
    """Return a digest of the columns and values of a table; an empty one without a table."""
    if table is None:
        return b""
    rows = pd.util.hash_pandas_object(table, index=False).to_numpy()
    return hashlib.sha256(repr([*table.columns]).encode() + rows.tobytes()).digest()
