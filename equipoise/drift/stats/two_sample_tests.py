"""Two samples, one question: would a clean window be as far from the reference as this one?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, kstwo

from equipoise.drift.features.random_fourier import median_distance
from equipoise.type_aliases import AnyArray, Float32Array, IntArray

MIN_PIECES = 50  # of the smaller sample, at least, that are permuted: no less is found than by single examples
KERNEL_ROWS = 500  # of the kernel at a time, which keeps memory small and its passes in the cache
MEDIAN_KERNEL_VALUE = np.float32(
    np.exp(-0.5)
)  # the kernel at the median distance: sums without it keep more digits of float32
MAX_SCALED_DISTANCE = np.float32(1e15)  # widths from the centre, whose square float32 still holds
PADDING_LOG_KERNEL = np.float32(
    -1e36
)  # a share of the logarithm that makes the kernel 0, and infinity would not: 0 * inf
TIE_TOLERANCES = 1e-3, 1e-7  # of the permutations' spread, and of the kernel: equal discrepancies differ by rounding
MIN_EXPECTED_COUNT = 5.0  # examples of a class in the smaller sample, below which its count is not close to normal


@dataclass(frozen=True)
class TestResult:
    """How far two samples are apart, and how often clean ones are at least as far."""

    statistic: float
    p_value: float


@dataclass(frozen=True, eq=False)
class ColumnTestResult:
    """A test of each column. Over c columns, compare the smallest p with alpha / c (Bonferroni)."""

    statistic: NDArray[np.float64]
    p_value: NDArray[np.float64]


def mmd_permutation_test(
    reference: AnyArray, window: AnyArray, permutations: int = 1000, seed: int = 0, group_size: int | None = None
) -> TestResult:
    """The squared maximum mean discrepancy of two samples, unbiased, with its permutation p (Gretton et al., 2012).

    About 0 for samples that are alike, and as often below. The kernel is Gaussian, as wide as the reference's median
    distance. `together` examples of one sample, drawn at random, are permuted as one. 1 allows every permutation; more
    allow a subgroup of them, for which p is as exact, and the work falls with the square ("Cheap permutation testing",
    Domingo-Enrich et al., 2025). Unless told, it leaves the smaller sample 50 such pieces or more.
    """
    validate_samples(reference, window)
    smaller = min(len(reference), len(window))
    group_size = max(1, smaller // MIN_PIECES) if group_size is None else group_size
    if permutations < 1 or not 1 <= group_size <= smaller:
        raise ValueError(
            f"asked for {permutations} permutations of {group_size} examples together; "
            f"ask for at least 1, and for 1 to {smaller} together"
        )
    rng = np.random.Generator(np.random.Philox(key=seed))
    points = _build_kernel_points(reference, window, group_size, rng)
    chosen = _permute_window_pieces(_piece_sizes(points), -(-len(window) // group_size), permutations, rng)
    values = _mmd_from_sums(*_kernel_sums(points, chosen), len(window), len(reference))
    return TestResult(float(values[0]), _permutation_p_value(values))


def ks_test_by_column(reference: AnyArray, window: AnyArray) -> ColumnTestResult:
    """The largest gap between two distribution functions, column by column, and its p.

    Both are taken from the right at the values that occur, so that ties are counted before they are compared. The p is
    that of the one-sample statistic for nm / (n + m) examples, rounded down; where values are tied it is too large.
    """
    validate_samples(reference, window)
    gaps = np.array([_ks_statistic(one, other) for one, other in zip(reference.T, window.T, strict=True)])
    effective = len(reference) * len(window) // (len(reference) + len(window))
    return ColumnTestResult(gaps, np.clip(kstwo.sf(gaps, effective), 0, 1))


def chi_squared_test(reference_counts: IntArray, window_counts: IntArray) -> TestResult:
    """Pearson's chi-squared of two counts of the same classes.

    Rare classes are taken together, rarest first, until 5 examples of each are expected. Where a single class is left,
    nothing can be told: the statistic is 0 and p is 1.
    """
    counts = [_validate_counts("reference", reference_counts), _validate_counts("window", window_counts)]
    if len(reference_counts) != len(window_counts):
        raise ValueError(
            f"the reference counts {len(reference_counts)} classes and the window {len(window_counts)}; "
            "count the same classes in the same order"
        )
    table = _merge_rare_classes(np.array(counts))
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return TestResult(statistic, float(chi2.sf(statistic, table.shape[1] - 1)) if table.shape[1] > 1 else 1.0)


def validate_samples(reference: AnyArray, window: AnyArray) -> None:
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


def _build_kernel_points(
    reference: AnyArray, window: AnyArray, group_size: int, rng: np.random.Generator
) -> Float32Array:
    """(blocks, together, pieces, columns + 2): examples over the kernel's width, 1, their share of its logarithm.

    Pieces are counted block by block, the window's first; each is drawn at random, since neighbours may be alike. What
    no sample fills are points that the kernel does not see: the rest of its last piece, and of the last block.
    """
    own, others = (-(-len(sample) // group_size) for sample in (window, reference))
    blocks = -(-(own + others) * group_size // KERNEL_ROWS)
    points = np.zeros((blocks, group_size, -(-(own + others) // blocks), reference.shape[1] + 2), np.float32)
    points[..., -2], points[..., -1] = 1, PADDING_LOG_KERNEL
    centre, scale = reference.mean(0, dtype=np.float64).astype(np.float32), np.float32(1 / median_distance(reference))
    for sample, begin in ((window, 0), (reference, own)):
        order = rng.permutation(len(sample))
        for some in np.split(np.arange(len(sample)), range(KERNEL_ROWS, len(sample), KERNEL_ROWS)):
            rows = (sample[order[some]] - centre).astype(np.float32, copy=False)
            rows = np.clip(rows * scale, -MAX_SCALED_DISTANCE, MAX_SCALED_DISTANCE)
            piece, layer = divmod(some, group_size)
            block, place = divmod(begin + piece, points.shape[2])
            points[block, layer, place, :-2] = rows
            points[block, layer, place, -1] = np.einsum("ij,ij->i", rows, rows) / -2
    return points


def _piece_sizes(points: Float32Array) -> Float32Array:
    """Examples in each piece."""
    return np.asarray((points[..., -1] > PADDING_LOG_KERNEL).sum(1).ravel(), np.float32)


def _permute_window_pieces(
    piece_sizes: Float32Array, window_pieces: int, permutations: int, rng: np.random.Generator
) -> Float32Array:
    """(permutations + 1, pieces) of 0 and 1: which are the window, as observed in the first row.

    What a sample has left over is less than a piece, could not take the place of one, and stays.
    """
    whole = np.flatnonzero(piece_sizes == piece_sizes.max())
    chosen = np.zeros((permutations + 1, len(piece_sizes)), np.float32)
    chosen[:, :window_pieces] = 1
    chosen[1:, whole] = 0
    count = int((whole < window_pieces).sum())
    for row in chosen[1:]:
        row[rng.choice(whole, count, replace=False, shuffle=False)] = 1
    return chosen


def _kernel_sums(
    points: Float32Array, window_masks: Float32Array
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Of the kernel over pairs of two different examples: both chosen, one chosen and one any, any two.

    The first two by row of `chosen`. Each is without USUAL, which adds the same to every mean.
    """
    blocks, _, step, _ = points.shape
    filled, within, share = _piece_sizes(points), np.zeros(len(window_masks)), np.zeros(blocks * step)
    for block in range(blocks):
        begin, end = block * step, (block + 1) * step
        kernel = _piece_kernel(points[block:])
        pairs = np.outer(filled[begin:end], filled[begin:])
        np.einsum("ii->i", pairs[:, :step])[:] -= filled[begin:end]
        kernel -= MEDIAN_KERNEL_VALUE * pairs
        share[begin:end] += kernel.sum(1, dtype=np.float64)
        share[end:] += kernel[:, step:].sum(0, dtype=np.float64)
        product = window_masks[:, begin:end] @ kernel
        within += np.einsum("ij,ij->i", product[:, :step], window_masks[:, begin:end])
        within += 2 * np.einsum("ij,ij->i", product[:, step:], window_masks[:, end:])
    return within, np.asarray(window_masks @ share), float(share.sum())


def _piece_kernel(points: Float32Array) -> Float32Array:
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


def _mmd_from_sums(
    within: AnyArray, cross_sums: AnyArray, total: float, window_size: int, reference_size: int
) -> NDArray[np.float64]:
    """Mean kernel within the window and within the reference, less twice that between them."""
    inside, outside, between = within, total - 2 * cross_sums + within, cross_sums - within
    return np.asarray(
        inside / (window_size * (window_size - 1))
        + outside / (reference_size * (reference_size - 1))
        - 2 * between / (window_size * reference_size)
    )


def _permutation_p_value(values: AnyArray) -> float:
    """Share of permutations, the observed one among them, that are at least as far apart: never 0."""
    rounding = TIE_TOLERANCES[0] * values.std() + TIE_TOLERANCES[1]
    return float((values >= values[0] - rounding).mean())


def _ks_statistic(reference_values: AnyArray, window_values: AnyArray) -> float:
    at = np.concatenate([reference_values, window_values])
    below = [
        np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (reference_values, window_values)
    ]
    return float(np.abs(below[0] - below[1]).max())


def _validate_counts(name: str, counts: IntArray) -> NDArray[np.float64]:
    found = np.asarray(counts, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any() or not found.sum() > 0:
        raise ValueError(f"the {name} counts {counts!s}; give how many examples of each class there are, not all 0")
    return found


def _merge_rare_classes(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """With the rarest classes added up, as many as it takes."""
    table = table[:, np.argsort(table.sum(0), kind="stable")]
    expected = table.sum(0) * table.sum(1).min() / table.sum()
    rare = int((expected < MIN_EXPECTED_COUNT).sum())
    if 0 < rare < len(expected) and expected[:rare].sum() < MIN_EXPECTED_COUNT:
        rare += 1
    return np.concatenate([table[:, :rare].sum(1, keepdims=True), table[:, rare:]], 1) if rare else table
