"""Estimate of the class run length: how many requests in a row are of one class, on average, from counts alone.

Counts of predicted classes say less about their shares when requests come in runs: twenty images of one product are
one observation of the class mix. Runs show as more pairs of images of one class, within a step and between steps, than
the shares explain; within a step this does not depend on the order of its images.
"""

from dataclasses import dataclass

import numpy as np

from equipoise.type_aliases import FloatArray

MEMORY_STEPS = 64.0  # steps over which the estimate averages
PRIOR_STEPS = 0.5  # steps without runs that the estimate starts from
SHARE_MEMORY_IMAGES = 4096.0  # images over which the class shares are averaged
PRIOR_SHARE_IMAGES = 256.0  # weight of the class shares of the reference at the start, in images
LAG_MEMORY_STEPS = 8.0  # steps in the mean of earlier steps; a step is compared with it and with the last step
MIN_PAIR_AGREEMENT = 0.7  # smallest share of pairs in a run with equal predictions: a model errs
CANDIDATE_RUN_LENGTHS = np.geomspace(1, 4096, 49)


@dataclass(eq=False)
class ClassRunEstimator:
    """Estimator of the mean class run length of several streams."""

    share: FloatArray
    """(streams, classes) decaying counts of predicted classes"""
    lately: FloatArray
    """(streams, 2, classes) class shares of the last step, and averaged over earlier steps"""
    alike: FloatArray
    """(streams, 3) decaying share of same-class pairs beyond chance: within a step, with the last, with earlier ones"""
    pairs: FloatArray
    """(streams,) value of each column of `alike` if all images were of one class"""
    size: FloatArray
    """(streams,) decaying sum of step sizes, in images"""
    steps: FloatArray
    """(streams,) decaying count of steps"""
    long: FloatArray
    """(streams,) run length found by `fit_run_length`, in images"""

    @classmethod
    def initial(cls, stream_count: int, shares: FloatArray) -> "ClassRunEstimator":
        """Create the estimator before the first image from class shares, (classes,) or (streams, classes)."""
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
        """Update the estimate by the predicted-class counts (streams, classes) of one step."""
        size = counts.sum(1)
        self.share = self.share * np.exp(-size / SHARE_MEMORY_IMAGES)[:, None] + counts
        now, expected = counts / np.maximum(size, 1)[:, None], self._chance_pair_share()
        within = (counts * (counts - 1)).sum(1) / np.maximum(size * (size - 1), 1)
        between = (self.lately * now[:, None]).sum(2)
        kept = 1 - 1 / MEMORY_STEPS
        self.alike = kept * self.alike + (np.concatenate([within[:, None], between], 1) - expected[:, None])
        self.pairs = kept * self.pairs + (1 - expected)
        self.size, self.steps = kept * self.size + size, kept * self.steps + 1
        self.lately[:, 0] = now
        self.lately[:, 1] += (now - self.lately[:, 1]) / LAG_MEMORY_STEPS
        if counts.shape[1] == 1:
            return  # of one class alone there are no runs
        self.long = fit_run_length(self.alike / self.pairs[:, None], np.maximum(self.size / self.steps, 2))

    def _chance_pair_share(self) -> FloatArray:
        """Return (streams,) the share of same-class pairs by chance, without the bias of shares known from few runs."""
        total = self.share.sum(1)
        squares = ((self.share / total[:, None]) ** 2).sum(1)
        bias = np.minimum(self.variance_factor() / total, 0.5)
        return np.asarray(np.clip((squares - bias) / (1 - bias), 1 / self.share.shape[1], 0.99))

    def mean_run_length(self) -> FloatArray:
        """Return (streams,) the mean length of a run in images; 1 without runs."""
        return self.long

    def variance_factor(self) -> FloatArray:
        """Return (streams,) the factor by which runs increase the variance of counts; 1 without runs."""
        return np.asarray(2 * self.long - 1)


def fit_run_length(pair_shares: FloatArray, step_size: FloatArray) -> FloatArray:
    """Return (streams,) the run length that fits pair shares (streams, 3) best; model errors break some pairs."""
    if (step_size == step_size[0]).all():  # as in simulations, where all streams share one row of expected shares
        step_size = step_size[:1]
    fits = expected_pair_shares(CANDIDATE_RUN_LENGTHS, step_size[:, None])  # 3 of (streams or 1, lengths)
    shares = [pair_shares[:, [column]] for column in range(len(fits))]
    products = sum(fit * share for fit, share in zip(fits, shares, strict=True))
    kept = np.clip(products / np.maximum(sum(fit**2 for fit in fits), 1e-12), MIN_PAIR_AGREEMENT, 1)
    errors = sum((share - kept * fit) ** 2 for fit, share in zip(fits, shares, strict=True))
    return np.asarray(CANDIDATE_RUN_LENGTHS[np.asarray(errors).argmin(1)])


def expected_pair_shares(run_length: FloatArray, step_size: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the expected share of pairs in one run: within a step, with the last step, with earlier steps.

    Runs end at random, so two images i and j belong to one run with probability r^|i - j|, with r = 1 - 1/length.
    """
    goes_on = 1 - 1 / run_length
    through = goes_on**step_size
    within = (
        2 * (step_size * goes_on * run_length - goes_on * (1 - through) * run_length**2) / (step_size * (step_size - 1))
    )
    last = goes_on * ((1 - through) * run_length / step_size) ** 2
    return within, last, last / LAG_MEMORY_STEPS / (1 - (1 - 1 / LAG_MEMORY_STEPS) * through)
