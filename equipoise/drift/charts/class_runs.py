"""How many requests in a row are of one class, on average, told from counts alone.

Counts of predicted classes say less about their shares when requests come in runs: twenty pictures of one product are
one observation of what is asked for. Runs show as pairs of one class, within a step and between steps, beyond what
shares explain; within a step that holds in whatever order its pictures are counted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MEMORY = 64.0  # steps that the estimate looks back over
BEFORE = 0.5  # steps without runs that it begins with
SLOW = 4096.0  # pictures over which the shares themselves are followed
HELD = 256.0  # pictures that the reference's shares count for at first
LATELY = 8.0  # steps before, that a step is compared with beside the last one
BROKEN = 0.7  # of pairs in a run that are called the same, at least: a model errs
LENGTHS = np.geomspace(1, 4096, 49)


@dataclass(eq=False)
class Runs:
    """Of several streams."""

    share: Array
    """(streams, classes): lately, as decaying counts"""
    lately: Array
    """(streams, last step or some before, classes): as shares"""
    alike: Array
    """(streams, 3): pairs of one class beyond chance, within a step, with the last, and with some before; decaying"""
    pairs: Array
    """(streams,): what each would be if all were of one class"""
    size: Array
    """(streams,): pictures of a step, decaying"""
    steps: Array
    long: Array
    """(streams,): what `length` says"""

    @classmethod
    def begun(cls, streams: int, shares: Array) -> "Runs":
        """Before the first picture, by the reference's shares of classes, (classes,) or (streams, classes)."""
        shares = np.broadcast_to(shares, (streams, shares.shape[-1]))
        return cls(
            share=HELD * shares,
            lately=np.stack([shares, shares], 1),
            alike=np.zeros((streams, 3)),
            pairs=BEFORE * (1 - (shares**2).sum(1)),
            size=np.zeros(streams),
            steps=np.zeros(streams),
            long=np.ones(streams),
        )

    def step(self, counts: Array) -> None:
        """One more step."""
        size = counts.sum(1)
        self.share = self.share * np.exp(-size / SLOW)[:, None] + counts
        now, usual = counts / np.maximum(size, 1)[:, None], self._usual()
        within = (counts * (counts - 1)).sum(1) / np.maximum(size * (size - 1), 1)
        between = (self.lately * now[:, None]).sum(2)
        kept = 1 - 1 / MEMORY
        self.alike = kept * self.alike + (np.concatenate([within[:, None], between], 1) - usual[:, None])
        self.pairs = kept * self.pairs + (1 - usual)
        self.size, self.steps = kept * self.size + size, kept * self.steps + 1
        self.lately[:, 0] = now
        self.lately[:, 1] += (now - self.lately[:, 1]) / LATELY
        self.long = length(self.alike / self.pairs[:, None], np.maximum(self.size / self.steps, 2))

    def _usual(self) -> Array:
        """(streams,) pairs of one class by chance; the squares of shares that are known from few runs are too large."""
        total = self.share.sum(1)
        squares = ((self.share / total[:, None]) ** 2).sum(1)
        loose = np.minimum(self.widening() / total, 0.5)
        return np.asarray(np.clip((squares - loose) / (1 - loose), 1 / self.share.shape[1], 0.99))

    def length(self) -> Array:
        """(streams,) pictures that a run lasts on average; 1 if there are no runs."""
        return self.long

    def widening(self) -> Array:
        """(streams,) the factor by which runs widen the variance of counts; 1 without runs."""
        return np.asarray(2 * self.long - 1)


def length(alike: Array, size: Array) -> Array:
    """The length of runs that fits pairs (streams, 3) of steps of some size best; a model's errors break some pairs."""
    fits = expected(LENGTHS, size[:, None])  # (streams, lengths, 3)
    kept = (fits * alike[:, None]).sum(2) / np.maximum((fits**2).sum(2), 1e-12)
    errors = ((alike[:, None] - np.clip(kept, BROKEN, 1)[..., None] * fits) ** 2).sum(2)
    return np.asarray(LENGTHS[errors.argmin(1)])


def expected(length: Array, size: Array) -> Array:
    """Share of pairs that belong to one run: within a step, with the last, with some before.

    Runs end by chance, so that two pictures i and j belong to one with r^|i - j|, with r = 1 - 1/length.
    """
    goes_on = 1 - 1 / length
    through = goes_on**size
    within = 2 * (size * goes_on * length - goes_on * (1 - through) * length**2) / (size * (size - 1))
    last = goes_on * ((1 - through) * length / size) ** 2
    return np.stack([within, last, last / LATELY / (1 - (1 - 1 / LATELY) * through)], -1)
