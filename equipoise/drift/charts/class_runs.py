"""How many requests in a row are of one class, on average, told from counts alone.

Counts of predicted classes say less about their shares when requests come in runs: twenty pictures of one product are
one observation of what is asked for. Runs show as pairs of one class, within a step and between steps, beyond what
shares explain; within a step that holds in whatever order its pictures are counted.
"""

from dataclasses import dataclass

import numpy as np

from equipoise.type_aliases import FloatArray

MEMORY_STEPS = 64.0  # steps that the estimate looks back over
PRIOR_STEPS = 0.5  # steps without runs that it begins with
SHARE_MEMORY_IMAGES = 4096.0  # pictures over which the shares themselves are followed
PRIOR_SHARE_IMAGES = 256.0  # pictures that the reference's shares count for at first
LAG_MEMORY_STEPS = 8.0  # steps before, that a step is compared with beside the last one
MIN_PAIR_AGREEMENT = 0.7  # of pairs in a run that are called the same, at least: a model errs
CANDIDATE_RUN_LENGTHS = np.geomspace(1, 4096, 49)


@dataclass(eq=False)
class ClassRunEstimator:
    """Of several streams."""

    share: FloatArray
    """(streams, classes): lately, as decaying counts"""
    lately: FloatArray
    """(streams, last step or some before, classes): as shares"""
    alike: FloatArray
    """(streams, 3): pairs of one class beyond chance, within a step, with the last, and with some before; decaying"""
    pairs: FloatArray
    """(streams,): what each would be if all were of one class"""
    size: FloatArray
    """(streams,): pictures of a step, decaying"""
    steps: FloatArray
    long: FloatArray
    """(streams,): what `fit_run_length` says"""

    @classmethod
    def initial(cls, stream_count: int, shares: FloatArray) -> "ClassRunEstimator":
        """Before the first picture, by the reference's shares of classes, (classes,) or (streams, classes)."""
        shares = np.broadcast_to(shares, (stream_count, shares.shape[-1]))
        return cls(
            share=PRIOR_SHARE_IMAGES * shares,
            lately=np.stack([shares, shares], 1),
            alike=np.zeros((stream_count, 3)),
            pairs=PRIOR_STEPS * (1 - (shares**2).sum(1)),
            size=np.zeros(stream_count),
            steps=np.zeros(stream_count),
            long=np.ones(stream_count),
        )

    def update(self, counts: FloatArray) -> None:
        """One more step."""
        size = counts.sum(1)
        self.share = self.share * np.exp(-size / SHARE_MEMORY_IMAGES)[:, None] + counts
        now, usual = counts / np.maximum(size, 1)[:, None], self._chance_pair_share()
        within = (counts * (counts - 1)).sum(1) / np.maximum(size * (size - 1), 1)
        between = (self.lately * now[:, None]).sum(2)
        kept = 1 - 1 / MEMORY_STEPS
        self.alike = kept * self.alike + (np.concatenate([within[:, None], between], 1) - usual[:, None])
        self.pairs = kept * self.pairs + (1 - usual)
        self.size, self.steps = kept * self.size + size, kept * self.steps + 1
        self.lately[:, 0] = now
        self.lately[:, 1] += (now - self.lately[:, 1]) / LAG_MEMORY_STEPS
        self.long = fit_run_length(self.alike / self.pairs[:, None], np.maximum(self.size / self.steps, 2))

    def _chance_pair_share(self) -> FloatArray:
        """(streams,) pairs of one class by chance; the squares of shares that are known from few runs are too large."""
        total = self.share.sum(1)
        squares = ((self.share / total[:, None]) ** 2).sum(1)
        loose = np.minimum(self.variance_factor() / total, 0.5)
        return np.asarray(np.clip((squares - loose) / (1 - loose), 1 / self.share.shape[1], 0.99))

    def mean_run_length(self) -> FloatArray:
        """(streams,) pictures that a run lasts on average; 1 if there are no runs."""
        return self.long

    def variance_factor(self) -> FloatArray:
        """(streams,) the factor by which runs widen the variance of counts; 1 without runs."""
        return np.asarray(2 * self.long - 1)


def fit_run_length(pair_shares: FloatArray, step_size: FloatArray) -> FloatArray:
    """The length of runs that fits pairs (streams, 3) of steps of some size best; a model's errors break some pairs."""
    fits = expected_pair_shares(CANDIDATE_RUN_LENGTHS, step_size[:, None])  # (streams, lengths, 3)
    kept = (fits * pair_shares[:, None]).sum(2) / np.maximum((fits**2).sum(2), 1e-12)
    errors = ((pair_shares[:, None] - np.clip(kept, MIN_PAIR_AGREEMENT, 1)[..., None] * fits) ** 2).sum(2)
    return np.asarray(CANDIDATE_RUN_LENGTHS[errors.argmin(1)])


def expected_pair_shares(run_length: FloatArray, step_size: FloatArray) -> FloatArray:
    """Share of pairs that belong to one run: within a step, with the last, with some before.

    Runs end by chance, so that two pictures i and j belong to one with r^|i - j|, with r = 1 - 1/length.
    """
    goes_on = 1 - 1 / run_length
    through = goes_on**step_size
    within = (
        2 * (step_size * goes_on * run_length - goes_on * (1 - through) * run_length**2) / (step_size * (step_size - 1))
    )
    last = goes_on * ((1 - through) * run_length / step_size) ** 2
    return np.stack([within, last, last / LAG_MEMORY_STEPS / (1 - (1 - 1 / LAG_MEMORY_STEPS) * through)], -1)
