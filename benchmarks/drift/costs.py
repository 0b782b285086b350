"""Cost of monitoring and of testing, and false-alarm rate of the betting test, which may be read at any time."""

import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.drift.image_pool import ImagePool, load_vending_profile
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.detector import StreamDetector
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.two_sample_tests import mmd_permutation_test

LOG_WEALTH_LIMIT = np.log(20)  # a false-alarm probability of 5 %
STREAM_IMAGES = 20_000
TEST_REPEATS = 20


def measure_permutation_test() -> list[str]:
    """Return the cost of the MMD test: 5,000 reference and 500 window rows, 512 features, 1,000 permutations."""
    lines = ["| permuted together | ms: median, least, most | of the bare product | MiB beyond its input |"]
    lines.append("|--:|--:|--:|--:|")
    for group_size in (None, 1):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:  # a fresh process: its peak memory is the test's
            test_seconds, product_seconds, mib = process.submit(time_permutation_tests, group_size).result()
        times = (
            f"{statistics.median(test_seconds) * 1e3:.0f}, {min(test_seconds) * 1e3:.0f}, {max(test_seconds) * 1e3:.0f}"
        )
        ratio = statistics.median(test_seconds) / statistics.median(product_seconds)
        lines.append(f"| {'the usual' if group_size is None else group_size} | {times} | {ratio:.2f} | {mib:.0f} |")
    return lines


def time_permutation_tests(group_size: int | None) -> tuple[list[float], list[float], float]:
    """Return CPU seconds of each test, CPU seconds of the bare product of all pairs, and MiB that the tests took."""
    rng = np.random.default_rng(0)
    reference, window = (rng.standard_normal((count, 512)).astype(np.float32) for count in (5000, 500))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    test_seconds = [median_cpu_seconds(lambda: mmd_permutation_test(reference, window, 1000, group_size=group_size), 1)]
    mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    pooled, product_seconds = np.concatenate([reference, window]), []
    for _ in range(TEST_REPEATS):
        test_seconds.append(
            median_cpu_seconds(lambda: mmd_permutation_test(reference, window, 1000, group_size=group_size), 1)
        )
        product_seconds.append(median_cpu_seconds(lambda: pooled[::2] @ pooled.T, 1))
    return test_seconds, product_seconds, mib


def measure_replica_cost() -> list[str]:
    """Return what a replica spends on each image, and the size of its sums and of the monitor's state."""
    profile = load_vending_profile()
    baseline = profile.baseline
    width, classes = baseline.random_fourier.directions.shape[0], baseline.layout.class_count
    rng = np.random.default_rng(0)
    lines = ["| picture | pictures together | us of a picture: figures | waves | sums |", "|---|--:|--:|--:|--:|"]
    for channels, side in ((3, 64), (3, 224)):
        for count in (1, 32):
            images = rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8)
            logits = rng.standard_normal((count, classes)).astype(np.float32)
            features = rng.standard_normal((count, width)).astype(np.float32)
            extracted = baseline.extract_features(images, logits, features)
            total = median_cpu_seconds(lambda: baseline.extract_features(images, logits, features), 50)  # noqa: B023 - called at once
            fourier = median_cpu_seconds(lambda: baseline.random_fourier(features), 50)  # noqa: B023
            sums = median_cpu_seconds(lambda: baseline.sum_features(extracted), 50)  # noqa: B023
            cells = [f"{seconds / count * 1e6:.1f}" for seconds in (total - fourier, fourier, sums)]
            lines.append(f"| {channels}x{side}x{side} | {count} | {' | '.join(cells)} |")
    state = sum(array.nbytes for array in StreamDetector.start(profile, 1e5).state_arrays().values())
    lines.append(
        f"\nA replica's sums: {baseline.layout.row_length * 8:,} bytes a "
        f"stream; the monitor's state: {state:,} bytes at first"
    )
    return lines


def median_cpu_seconds(action: Callable[[], object], times: int) -> float:
    """Return the median CPU seconds of this process over several calls of an action."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def measure_false_betting_alarms(clean: ImagePool, profile: ReferenceProfile, streams: int) -> list[str]:
    """Return the share of clean streams that ever reach the evidence allowed for one stream in twenty."""
    baseline = profile.baseline
    features = clean.image_features(baseline.random_fourier, baseline.temperature)
    scores = baseline.usual.scores(features)
    low, high = baseline.betting_gains(scores)
    rng, alarmed = np.random.default_rng(0), 0
    for _ in range(streams):
        test = BettingTest.initial(low.shape[1])
        steps = rng.integers(0, len(features), (STREAM_IMAGES // 16, 16))
        alarmed += any(
            update_log_wealth(test, low[step].sum(0), high[step].sum(0)) >= LOG_WEALTH_LIMIT for step in steps
        )
    return [
        f"{alarmed} of {streams} clean streams of {STREAM_IMAGES:,} pictures reached the evidence for 1 in 20 at some "
        f"time ({alarmed / streams:.1%}; at most 5 % expected)"
    ]


def update_log_wealth(test: BettingTest, low_gains: np.ndarray, high_gains: np.ndarray) -> float:
    """Add one step to a betting test and return the logarithm of its mean wealth."""
    test.update(low_gains, high_gains)
    return test.log_mean_wealth()
