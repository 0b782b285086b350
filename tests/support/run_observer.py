"""What whoever looks on sees of a run while things go wrong: the figures of the table of faults."""

import json
import time
from contextlib import contextmanager


def read_laps(out):
    """Those in the journal so far: whole lines."""
    journal = out / "laps.jsonl"
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def last_step(out, workers=None):
    """The last step of a lap that so many workers took."""
    found = [lap["step"] for lap in read_laps(out) if workers in (None, lap["workers"])]
    return found[-1] if found else 0


@contextmanager
def print_duration(what, capsys):
    """How long it takes, said aloud."""
    start = time.monotonic()
    yield
    with capsys.disabled():
        print(f"\n  {what}: {time.monotonic() - start:.0f} s")


def print_repeated_laps(before, after, capsys):
    """Laps that had to be taken again, said aloud; all that were there are there."""
    assert [lap["step"] for lap in after[: len(before)]] == [lap["step"] for lap in before]
    kept = sum(one == other for one, other in zip(before, after, strict=False))  # to the microsecond: not taken again
    with capsys.disabled():
        seconds = sum(lap["seconds"] for lap in before[kept:])
        print(f"  laps that were taken again: {len(before) - kept}, {seconds:.1f} s")
