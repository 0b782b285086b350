"""What watching and testing cost, and how often evidence that may be looked at any time is wrong."""

import resource
import statistics as middle
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.drift.image_pool import Pool, reference
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.detector import StreamDetector
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.two_sample_tests import mmd_permutation_test

SURE = np.log(20)
LONG = 20_000  # pictures of a stream
TESTS = 20


def batch() -> list[str]:
    """The test of two sets: a reference of 5,000, a window of 500, 512 features, 1,000 permutations."""
    lines = ["| permuted together | ms: median, least, most | of the bare product | MiB beyond its input |"]
    lines.append("|--:|--:|--:|--:|")
    for together in (None, 1):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:  # whose memory held nothing else before
            took, bare, grown = process.submit(permuted, together).result()
        times = f"{middle.median(took) * 1e3:.0f}, {min(took) * 1e3:.0f}, {max(took) * 1e3:.0f}"
        ratio = middle.median(took) / middle.median(bare)
        lines.append(f"| {'the usual' if together is None else together} | {times} | {ratio:.2f} | {grown:.0f} |")
    return lines


def permuted(together: int | None) -> tuple[list[float], list[float], float]:
    """CPU seconds of each of some tests, of each pair's product once and nothing else, and MiB that the tests took."""
    rng = np.random.default_rng(0)
    known, window = (rng.standard_normal((count, 512)).astype(np.float32) for count in (5000, 500))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = [timed(lambda: mmd_permutation_test(known, window, 1000, group_size=together), 1)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    every, bare = np.concatenate([known, window]), []
    for _ in range(TESTS):
        took.append(timed(lambda: mmd_permutation_test(known, window, 1000, group_size=together), 1))
        bare.append(timed(lambda: every[::2] @ every.T, 1))
    return took, bare, grown


def looking() -> list[str]:
    """What a replica spends on a picture, and the monitor on a step."""
    known = reference()
    base = known.baseline
    width, classes = base.random_fourier.directions.shape[0], base.layout.class_count
    rng = np.random.default_rng(0)
    lines = ["| picture | pictures together | us of a picture: figures | waves | sums |", "|---|--:|--:|--:|--:|"]
    for channels, side in ((3, 64), (3, 224)):
        for count in (1, 32):
            pictures = rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8)
            logits = rng.standard_normal((count, classes)).astype(np.float32)
            features = rng.standard_normal((count, width)).astype(np.float32)
            seen = base.extract_features(pictures, logits, features)
            whole = timed(lambda: base.extract_features(pictures, logits, features), 50)  # noqa: B023 - called at once
            waves, sums = timed(lambda: base.random_fourier(features), 50), timed(lambda: base.sum_features(seen), 50)  # noqa: B023
            each = [f"{one / count * 1e6:.1f}" for one in (whole - waves, waves, sums)]
            lines.append(f"| {channels}x{side}x{side} | {count} | {' | '.join(each)} |")
    state = sum(array.nbytes for array in StreamDetector.start(known, 1e5).state_arrays().values())
    lines.append(
        f"\nA replica's sums: {base.layout.row_length * 8:,} bytes a "
        f"stream; the monitor's state: {state:,} bytes at first"
    )
    return lines


def timed(what: Callable[[], object], times: int) -> float:
    """CPU seconds of this process, the median of some."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        what()
        found.append(time.process_time() - begun)
    return middle.median(found)


def anytime(clean: Pool, known: ReferenceProfile, streams: int) -> list[str]:
    """Streams that ever reach the evidence for one in twenty, though nothing changed."""
    base = known.baseline
    seen = clean.seen(base.random_fourier, base.temperature)
    scores = base.usual.scores(seen)
    low, high = base.betting_gains(scores)
    rng, ever = np.random.default_rng(0), 0
    for _ in range(streams):
        evidence, places = BettingTest.initial(low.shape[1]), rng.integers(0, len(seen), (LONG // 16, 16))
        ever += any(grown(evidence, low[some].sum(0), high[some].sum(0)) >= SURE for some in places)
    return [f"{ever} of {streams} clean streams of {LONG:,} pictures ever reached it ({ever / streams:.1%}; 5 % may)"]


def grown(evidence: BettingTest, low: np.ndarray, high: np.ndarray) -> float:
    """The evidence after a step."""
    evidence.update(low, high)
    return evidence.log_mean_wealth()
