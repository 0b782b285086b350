"""Follow a run from outside while faults happen to it, and print the figures of docs/operations/failure-modes.md."""

import json
import time
from contextlib import contextmanager


def read_laps(out):
    """Return the laps that the journal of a run holds so far, without an unfinished last line."""
    journal = out / "laps.jsonl"
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def last_step(out, workers=None):
    """Return the step at which the latest lap ended, of laps with so many workers if given; 0 if there is none."""
    steps = [lap["step"] for lap in read_laps(out) if workers in (None, lap["workers"])]
    return steps[-1] if steps else 0


@contextmanager
def print_duration(label, capsys):
    """Print how many seconds the block takes."""
    start = time.monotonic()
    yield
    with capsys.disabled():
        print(f"\n  {label}: {time.monotonic() - start:.0f} s")


def print_repeated_laps(before, after, capsys):
    """Print how many laps were trained again; assert that `after` has every lap of `before`."""
    assert [lap["step"] for lap in after[: len(before)]] == [lap["step"] for lap in before]
    # a lap whose times agree to the microsecond was not trained again
    unchanged = sum(old == new for old, new in zip(before, after, strict=False))
    with capsys.disabled():
        seconds = sum(lap["seconds"] for lap in before[unchanged:])
        print(f"  laps that were trained again: {len(before) - unchanged}, {seconds:.1f} s")
