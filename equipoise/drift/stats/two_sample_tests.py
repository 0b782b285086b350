"""Two samples, one question: would a clean window be as far from the reference as this one?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, kstwo

from equipoise.drift.features.random_fourier import width

Array = NDArray[Any]
Counts = NDArray[np.integer[Any]]
Single = NDArray[np.float32]

PIECES = 50  # of the smaller sample, at least, that are permuted: no less is found than by single examples
ROWS = 500  # of the kernel at a time, which keeps memory small and its passes in the cache
USUAL = np.float32(np.exp(-0.5))  # the kernel at the median distance: sums without it keep more digits of float32
FARTHEST = np.float32(1e15)  # widths from the centre, whose square float32 still holds
NOWHERE = np.float32(-1e36)  # a share of the logarithm that makes the kernel 0, and infinity would not: 0 * inf
NEAR = 1e-3, 1e-7  # of the permutations' spread, and of the kernel: equal discrepancies differ by rounding
EXPECTED = 5.0  # examples of a class in the smaller sample, below which its count is not close to normal


@dataclass(frozen=True)
class Test:
    """How far two samples are apart, and how often clean ones are at least as far."""

    statistic: float
    p: float


@dataclass(frozen=True, eq=False)
class Columns:
    """A test of each column. Over c columns, compare the smallest p with alpha / c (Bonferroni)."""

    statistic: NDArray[np.float64]
    p: NDArray[np.float64]


def discrepancy(
    reference: Array, window: Array, permutations: int = 1000, seed: int = 0, together: int | None = None
) -> Test:
    """The squared maximum mean discrepancy of two samples, unbiased, with its permutation p (Gretton et al., 2012).

    About 0 for samples that are alike, and as often below. The kernel is Gaussian, as wide as the reference's median
    distance. `together` examples of one sample, drawn at random, are permuted as one. 1 allows every permutation; more
    allow a subgroup of them, for which p is as exact, and the work falls with the square ("Cheap permutation testing",
    Domingo-Enrich et al., 2025). Unless told, it leaves the smaller sample 50 such pieces or more.
    """
    checked(reference, window)
    smaller = min(len(reference), len(window))
    together = max(1, smaller // PIECES) if together is None else together
    if permutations < 1 or not 1 <= together <= smaller:
        raise ValueError(
            f"asked for {permutations} permutations of {together} examples together; "
            f"ask for at least 1, and for 1 to {smaller} together"
        )
    rng = np.random.Generator(np.random.Philox(key=seed))
    points = _points(reference, window, together, rng)
    chosen = _choices(_filled(points), -(-len(window) // together), permutations, rng)
    values = _apart(*_sums(points, chosen), len(window), len(reference))
    return Test(float(values[0]), _rank(values))


def kolmogorov(reference: Array, window: Array) -> Columns:
    """The largest gap between two distribution functions, column by column, and its p.

    Both are taken from the right at the values that occur, so that ties are counted before they are compared. The p is
    that of the one-sample statistic for nm / (n + m) examples, rounded down; where values are tied it is too large.
    """
    checked(reference, window)
    gaps = np.array([_gap(one, other) for one, other in zip(reference.T, window.T, strict=True)])
    effective = len(reference) * len(window) // (len(reference) + len(window))
    return Columns(gaps, np.clip(kstwo.sf(gaps, effective), 0, 1))


def shares(reference_counts: Counts, window_counts: Counts) -> Test:
    """Pearson's chi-squared of two counts of the same classes.

    Rare classes are taken together, rarest first, until 5 examples of each are expected. Where a single class is left,
    nothing can be told: the statistic is 0 and p is 1.
    """
    counts = [_counted("reference", reference_counts), _counted("window", window_counts)]
    if len(reference_counts) != len(window_counts):
        raise ValueError(
            f"the reference counts {len(reference_counts)} classes and the window {len(window_counts)}; "
            "count the same classes in the same order"
        )
    table = _gathered(np.array(counts))
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return Test(statistic, float(chi2.sf(statistic, table.shape[1] - 1)) if table.shape[1] > 1 else 1.0)


def checked(reference: Array, window: Array) -> None:
    """Raise ValueError unless both are tables of finite numbers, equally wide, of two rows or more."""
    for name, sample in (("reference", reference), ("window", window)):
        if sample.ndim != 2 or len(sample) < 2 or not sample.shape[1]:
            raise ValueError(f"the {name} has shape {sample.shape}; give a table of at least 2 rows and 1 column")
        if not np.isfinite(sample).all():
            raise ValueError(f"the {name} holds NaN or infinite numbers; leave those rows out")
    if reference.shape[1] != window.shape[1]:
        raise ValueError(
            f"the reference has {reference.shape[1]} columns and the window {window.shape[1]}; "
            "give features of the same model"
        )


def _points(reference: Array, window: Array, together: int, rng: np.random.Generator) -> Single:
    """(blocks, together, pieces, columns + 2): examples over the kernel's width, 1, their share of its logarithm.

    Pieces are counted block by block, the window's first; each is drawn at random, since neighbours may be alike. What
    no sample fills are points that the kernel does not see: the rest of its last piece, and of the last block.
    """
    own, others = (-(-len(sample) // together) for sample in (window, reference))
    blocks = -(-(own + others) * together // ROWS)
    points = np.zeros((blocks, together, -(-(own + others) // blocks), reference.shape[1] + 2), np.float32)
    points[..., -2], points[..., -1] = 1, NOWHERE
    centre, scale = reference.mean(0, dtype=np.float64).astype(np.float32), np.float32(1 / width(reference))
    for sample, begin in ((window, 0), (reference, own)):
        order = rng.permutation(len(sample))
        for some in np.split(np.arange(len(sample)), range(ROWS, len(sample), ROWS)):
            rows = (sample[order[some]] - centre).astype(np.float32, copy=False)
            rows = np.clip(rows * scale, -FARTHEST, FARTHEST)
            piece, layer = divmod(some, together)
            block, place = divmod(begin + piece, points.shape[2])
            points[block, layer, place, :-2] = rows
            points[block, layer, place, -1] = np.einsum("ij,ij->i", rows, rows) / -2
    return points


def _filled(points: Single) -> Single:
    """Examples in each piece."""
    return np.asarray((points[..., -1] > NOWHERE).sum(1).ravel(), np.float32)


def _choices(filled: Single, own: int, permutations: int, rng: np.random.Generator) -> Single:
    """(permutations + 1, pieces) of 0 and 1: which are the window, as observed in the first row.

    What a sample has left over is less than a piece, could not take the place of one, and stays.
    """
    whole = np.flatnonzero(filled == filled.max())
    chosen = np.zeros((permutations + 1, len(filled)), np.float32)
    chosen[:, :own] = 1
    chosen[1:, whole] = 0
    count = int((whole < own).sum())
    for row in chosen[1:]:
        row[rng.choice(whole, count, replace=False, shuffle=False)] = 1
    return chosen


def _sums(points: Single, chosen: Single) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Of the kernel over pairs of two different examples: both chosen, one chosen and one any, any two.

    The first two by row of `chosen`. Each is without USUAL, which adds the same to every mean.
    """
    blocks, _, step, _ = points.shape
    filled, within, share = _filled(points), np.zeros(len(chosen)), np.zeros(blocks * step)
    for block in range(blocks):
        begin, end = block * step, (block + 1) * step
        kernel = _kernel(points[block:])
        pairs = np.outer(filled[begin:end], filled[begin:])
        np.einsum("ii->i", pairs[:, :step])[:] -= filled[begin:end]
        kernel -= USUAL * pairs
        share[begin:end] += kernel.sum(1, dtype=np.float64)
        share[end:] += kernel[:, step:].sum(0, dtype=np.float64)
        product = chosen[:, begin:end] @ kernel
        within += np.einsum("ij,ij->i", product[:, :step], chosen[:, begin:end])
        within += 2 * np.einsum("ij,ij->i", product[:, step:], chosen[:, end:])
    return within, np.asarray(chosen @ share), float(share.sum())


def _kernel(points: Single) -> Single:
    """Sums over examples of the first block's pieces and of all; 0 for one with itself."""
    blocks, layers, step, columns = points.shape
    rows = points.reshape(-1, columns)
    left = rows[: layers * step]
    left = np.concatenate([left[:, :-2], left[:, :-3:-1]], 1)  # so that the product adds both shares
    kernel = left @ rows.T
    np.exp(np.minimum(kernel, 0, out=kernel), out=kernel)  # far from the centre, rounding makes large numbers
    np.fill_diagonal(kernel, 0)
    return np.asarray(kernel.reshape(layers, step, -1).sum(0).reshape(step, blocks, layers, step).sum(2)).reshape(
        step, -1
    )


def _apart(within: Array, share: Array, total: float, window: int, reference: int) -> NDArray[np.float64]:
    """Mean kernel within the window and within the reference, less twice that between them."""
    inside, outside, between = within, total - 2 * share + within, share - within
    return np.asarray(
        inside / (window * (window - 1)) + outside / (reference * (reference - 1)) - 2 * between / (window * reference)
    )


def _rank(values: Array) -> float:
    """Share of permutations, the observed one among them, that are at least as far apart: never 0."""
    rounding = NEAR[0] * values.std() + NEAR[1]
    return float((values >= values[0] - rounding).mean())


def _gap(one: Array, other: Array) -> float:
    at = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def _counted(name: str, counts: Counts) -> NDArray[np.float64]:
    found = np.asarray(counts, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any() or not found.sum() > 0:
        raise ValueError(f"the {name} counts {counts!s}; give how many examples of each class there are, not all 0")
    return found


def _gathered(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """With the rarest classes added up, as many as it takes."""
    table = table[:, np.argsort(table.sum(0), kind="stable")]
    expected = table.sum(0) * table.sum(1).min() / table.sum()
    rare = int((expected < EXPECTED).sum())
    if 0 < rare < len(expected) and expected[:rare].sum() < EXPECTED:
        rare += 1
    return np.concatenate([table[:, :rare].sum(1, keepdims=True), table[:, rare:]], 1) if rare else table
