"""What one worker sends and receives while a tensor is summed over all workers: plain data, computed without torch.

All workers take their rounds in step. In a round a worker sends parts of its tensor to its peers, waits for what they
send, and puts it in place. A round in which a worker has nothing to do is empty, so that rounds have the same number on
all workers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Message(NamedTuple):
    """Part of the flat tensor that goes to a worker or comes from one."""

    peer: int
    """rank of the other worker"""
    start: int
    """first element"""
    stop: int
    """element after the last one"""


@dataclass(frozen=True)
class Round:
    """Messages of one worker that travel at the same time."""

    sends: Sequence[Message] = ()
    receives: Sequence[Message] = ()
    adds: bool = False
    """whether what arrives is added to the own part, all in the order of ranks; else it replaces it"""


Schedule = Sequence[Round]


def split_evenly(start: int, stop: int, parts: int) -> list[int]:
    """Return the bounds of `parts` parts of a range, whose sizes differ by one at most."""
    return [start + (stop - start) * index // parts for index in range(parts + 1)]


def count_sent_elements(rounds: Iterable[Round]) -> int:
    """Return the number of elements that the worker sends."""
    return sum(message.stop - message.start for part in rounds for message in part.sends)


def count_scratch_elements(rounds: Iterable[Round]) -> int:
    """Return the number of elements that wait to be added, in the round with most of them."""
    return max((sum(m.stop - m.start for m in part.receives) for part in rounds if part.adds), default=0)


def list_next_peers(rank: int, ranks: int) -> list[int]:
    """Return the other workers, the next one first, so that not all send to the same one first."""
    return [(rank + distance) % ranks for distance in range(1, ranks)]
