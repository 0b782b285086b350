"""Two-sample tests of whether a window without drift would be as far from the reference as this one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.random_fourier import median_distance
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray, Float32Array, IntArray

MIN_PIECES = 50  # of the smaller sample, at least: with so many, permuting pieces has the power of permuting examples
KERNEL_ROWS = 500  # of the kernel at a time, which keeps memory small and every pass in the cache
MEDIAN_KERNEL_VALUE = np.float32(np.exp(-0.5))  # at the median distance; sums less it keep more digits of float32
MAX_SCALED_DISTANCE = np.float32(1e15)  # kernel widths from the centre; float32 still holds its square
PADDING_LOG_KERNEL = np.float32(-1e36)  # makes the kernel 0 at padding; -infinity would give 0 * inf = NaN
TIE_TOLERANCES = 1e-3, 1e-7  # of the permutations' spread, and of the kernel: equal discrepancies differ by rounding
MIN_EXPECTED_COUNT = 5.0  # examples of a class in the smaller sample; below, its count is not close to normal


@dataclass(frozen=True)
class TestResult:
    """Distance of two samples, and how often samples of one distribution are at least as far apart."""

    statistic: float
    p_value: float


@dataclass(frozen=True, eq=False)
class ColumnTestResult:
    """Results of one test per column; over c columns, compare the smallest p with alpha / c (Bonferroni)."""

    statistic: NDArray[np.float64]
    p_value: NDArray[np.float64]


def mmd_permutation_test(
    reference: AnyArray, window: AnyArray, permutations: int = 1000, seed: int = 0, group_size: int | None = None
) -> TestResult:
    """Return the unbiased squared maximum mean discrepancy and its permutation p (Gretton et al., 2012).

    Without drift it is about 0, and below 0 as often as above. The kernel is Gaussian, as wide as the median distance
    of the reference. `group_size` examples of one sample, drawn at random, are permuted together as one piece. 1 allows
    every permutation; more allow a subgroup of them, for which p is as exact, and the work falls with the square
    ("Cheap permutation testing", Domingo-Enrich et al., 2025). By default the smaller sample has 50 pieces or more.
    """
    validate_samples(reference, window)
    smaller = min(len(reference), len(window))
    group_size = max(1, smaller // MIN_PIECES) if group_size is None else group_size
    if permutations < 1 or not 1 <= group_size <= smaller:
        raise ValueError(
            f"cannot run {permutations} permutations of pieces of {group_size} examples; "
            f"ask for at least 1 permutation, and for pieces of 1 to {smaller} examples"
        )
    rng = np.random.Generator(np.random.Philox(key=seed))
    points = _build_kernel_points(reference, window, group_size, rng)
    chosen = _permute_window_pieces(_piece_sizes(points), -(-len(window) // group_size), permutations, rng)
    values = _mmd_from_sums(*_kernel_sums(points, chosen), len(window), len(reference))
    return TestResult(float(values[0]), _permutation_p_value(values))


def ks_test_by_column(reference: AnyArray, window: AnyArray) -> ColumnTestResult:
    """Return the Kolmogorov-Smirnov statistic of each column (largest gap of distribution functions) and its p.

    p is that of the one-sample statistic for nm / (n + m) examples, rounded down; it is too large for ties. By scipy,
    which rounds to the nearest, p would be up to 5 % smaller at 60 examples.
    """
    from scipy.stats import ks_2samp, kstwo  # it takes most of a second to import: trainings need none of it

    validate_samples(reference, window)
    gaps = ks_2samp(reference, window, axis=0, method="asymp").statistic
    effective = len(reference) * len(window) // (len(reference) + len(window))
    return ColumnTestResult(gaps, np.clip(kstwo.sf(gaps, effective), 0, 1))


def chi_squared_test(reference_counts: IntArray, window_counts: IntArray) -> TestResult:
    """Return Pearson's chi-squared of two counts of the same classes.

    Rare classes are merged, rarest first, until at least 5 examples are expected. If a single class is left, nothing
    can be tested: the statistic is 0 and p is 1.
    """
    from scipy.stats import chi2_contingency  # as above

    counts = [_validate_counts("reference", reference_counts), _validate_counts("window", window_counts)]
    if len(reference_counts) != len(window_counts):
        raise ValueError(
            f"the reference has counts of {len(reference_counts)} classes and the window of {len(window_counts)}; "
            "count the same classes in the same order"
        )
    test = chi2_contingency(_merge_rare_classes(np.array(counts)), correction=False)
    return TestResult(float(test.statistic), float(test.pvalue))


def validate_samples(reference: AnyArray, window: AnyArray) -> None:
    """Raise ValueError unless both are tables, equally wide, of two rows or more; refuse NaN and infinite numbers."""
    for name, sample in (("reference", reference), ("window", window)):
        if sample.ndim != 2 or len(sample) < 2 or not sample.shape[1]:
            raise ValueError(f"the {name} has shape {sample.shape}; give a table of at least 2 rows and 1 column")
        if not np.isfinite(sample).all():
            raise EquipoiseError(  # a model may return such numbers for some images
                "dataset-invalid", f"the {name} holds NaN or infinite numbers", "leave those rows out"
            )
    if reference.shape[1] != window.shape[1]:
        raise ValueError(
            f"the reference has {reference.shape[1]} columns and the window {window.shape[1]}; "
            "give features of the same model"
        )


def _build_kernel_points(
    reference: AnyArray, window: AnyArray, group_size: int, rng: np.random.Generator
) -> Float32Array:
    """Build points (blocks, group size, pieces, columns + 2): scaled examples, 1, and their part of the log kernel.

    Pieces are numbered block by block, those of the window first; each is drawn at random, since neighbours may be
    alike. Padding, in the last piece of each sample and in the last block, has a kernel of 0 with every point.
    """
    own, others = (-(-len(sample) // group_size) for sample in (window, reference))
    blocks = -(-(own + others) * group_size // KERNEL_ROWS)
    points = np.zeros((blocks, group_size, -(-(own + others) // blocks), reference.shape[1] + 2), np.float32)
    points[..., -2], points[..., -1] = 1, PADDING_LOG_KERNEL
    centre, scale = reference.mean(0, dtype=np.float64).astype(np.float32), np.float32(1 / median_distance(reference))
    for sample, begin in ((window, 0), (reference, own)):
        order = rng.permutation(len(sample))
        for batch in np.split(np.arange(len(sample)), range(KERNEL_ROWS, len(sample), KERNEL_ROWS)):
            rows = (sample[order[batch]] - centre).astype(np.float32, copy=False)
            rows = np.clip(rows * scale, -MAX_SCALED_DISTANCE, MAX_SCALED_DISTANCE)
            piece, layer = divmod(batch, group_size)
            block, index = divmod(begin + piece, points.shape[2])
            points[block, layer, index, :-2] = rows
            points[block, layer, index, -1] = np.einsum("ij,ij->i", rows, rows) / -2
    return points


def _piece_sizes(points: Float32Array) -> Float32Array:
    """Return the number of examples in each piece."""
    return np.asarray((points[..., -1] > PADDING_LOG_KERNEL).sum(1).ravel(), np.float32)


def _permute_window_pieces(
    piece_sizes: Float32Array, window_pieces: int, permutations: int, rng: np.random.Generator
) -> Float32Array:
    """Draw masks (permutations + 1, pieces), 1 for pieces of the window; the first row is the observed one.

    The last piece of a sample may be incomplete; it cannot be exchanged with a full one and stays in its sample.
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
    """Return kernel sums over pairs of different examples: both in the window, one in the window, any two.

    The first two are by row of `window_masks`. MEDIAN_KERNEL_VALUE is subtracted from every pair, which shifts every
    mean by the same amount.
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
    """Return kernel sums over examples, pieces of the first block by all pieces; 0 for an example with itself."""
    blocks, layers, step, columns = points.shape
    rows = points.reshape(-1, columns)
    left = rows[: layers * step]
    left = np.concatenate([left[:, :-2], left[:, :-3:-1]], 1)  # so that the product adds both parts of the log kernel
    kernel = left @ rows.T
    np.exp(np.minimum(kernel, 0, out=kernel), out=kernel)  # far from the centre, rounding makes it positive
    np.fill_diagonal(kernel, 0)
    return np.asarray(kernel.reshape(layers, step, -1).sum(0).reshape(step, blocks, layers, step).sum(2)).reshape(
        step, -1
    )


def _mmd_from_sums(
    within: AnyArray, cross_sums: AnyArray, total: float, window_size: int, reference_size: int
) -> NDArray[np.float64]:
    """Return the mean kernel within the window plus that within the reference, minus twice that between them."""
    inside, outside, between = within, total - 2 * cross_sums + within, cross_sums - within
    return np.asarray(
        inside / (window_size * (window_size - 1))
        + outside / (reference_size * (reference_size - 1))
        - 2 * between / (window_size * reference_size)
    )


def _permutation_p_value(values: AnyArray) -> float:
    """Return the share of permutations, the observed one included, that are at least as far apart; never 0."""
    rounding = TIE_TOLERANCES[0] * values.std() + TIE_TOLERANCES[1]
    return float((values >= values[0] - rounding).mean())


def _validate_counts(name: str, counts: IntArray) -> NDArray[np.float64]:
    result = np.asarray(counts, np.float64)
    if result.ndim != 1 or not np.isfinite(result).all() or (result < 0).any() or not result.sum() > 0:
        raise ValueError(f"the {name} counts are {counts!s}; give how many examples each class has, not all 0")
    return result


def _merge_rare_classes(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Merge the rarest classes into one until its expected count is large enough."""
    table = table[:, np.argsort(table.sum(0), kind="stable")]
    expected = table.sum(0) * table.sum(1).min() / table.sum()
    rare = int((expected < MIN_EXPECTED_COUNT).sum())
    if 0 < rare < len(expected) and expected[:rare].sum() < MIN_EXPECTED_COUNT:
        rare += 1
    return np.concatenate([table[:, :rare].sum(1, keepdims=True), table[:, rare:]], 1) if rare else table
