"""Requests from a change to its alarm, and the cause that the first verdict names."""

from dataclasses import dataclass

import numpy as np

from benchmarks.drift.image_pool import ImagePool
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene

CLEAN_REQUESTS, MAX_DRIFTED_REQUESTS = 512, 1600  # before the change, and after it
STEP_SIZE = 16
RUN_LENGTH = 100_000.0


@dataclass(frozen=True)
class ChangeResult:
    """Alarm and verdict of one stream that changes."""

    delay: int | None
    """requests from the change to the alarm; None without an alarm, negative if the alarm came before the change"""
    cause: str | None
    """cause named at the alarm"""
    since_error: float
    """error of the number of requests since the change in the final verdict, as a fraction of the true number"""
    effect_sizes: dict[str, float]
    """size of each cause in the final verdict"""


GAIN_STOPS = float(np.log2(0.8))
CHANGES: dict[str, tuple[Scene, str, int | None]] = {
    "light 6500 -> 5000 K": (Scene(kelvin=5000), "colour temperature", 150),
    "light 6500 -> 4000 K": (Scene(kelvin=4000), "colour temperature", 50),
    "veil of 5 %": (Scene(veil=0.05), "reflection", 100),
    "gain of 0.8": (Scene(exposure=GAIN_STOPS), "exposure", 100),
    "blur of 0.8 pixels": (Scene(blur=0.8), "blur", 50),
    "noise of 0.04": (Scene(noise=0.04), "noise", 50),
    "highlight of 0.4": (Scene(highlight=0.4), "reflection", None),
    "JPEG of quality 50": (Scene(jpeg=50), "compression", None),
}
"""scene after each change, its cause, and the goal: requests within which the alarm must come"""
TRUE_EFFECT_SIZES = {
    "light 6500 -> 5000 K": ("colour temperature", 5000.0),
    "light 6500 -> 4000 K": ("colour temperature", 4000.0),
    "gain of 0.8": ("exposure", GAIN_STOPS),
}
"""cause and true size of the changes whose size the verdict must estimate"""


def measure_alarm_delay(profile: ReferenceProfile, clean: ImagePool, drifted: ImagePool, seed: int) -> ChangeResult:
    """Run one stream that changes through a detector and return what the detector reported."""
    rng = np.random.default_rng(seed)
    detector = StreamDetector.start(profile, RUN_LENGTH)
    alarm_verdict: StreamVerdict | None = None
    for pool, count in ((clean, CLEAN_REQUESTS), (drifted, MAX_DRIFTED_REQUESTS)):
        indices = rng.integers(0, len(pool), count)
        stream = pool.select(indices).image_features(profile.baseline.random_fourier, profile.baseline.temperature)
        for start in range(0, count, STEP_SIZE):
            if (
                detector.add_sums(
                    profile.baseline.sum_features(select_step(stream, start)), float(detector.observed_images)
                )
                and alarm_verdict is None
            ):
                alarm_verdict = compute_stream_verdict(detector)
    final = compute_stream_verdict(detector)
    delay = None if alarm_verdict is None else int(alarm_verdict.since.alarm.image_number) - CLEAN_REQUESTS
    since_error = abs(final.since.images_ago - MAX_DRIFTED_REQUESTS) / MAX_DRIFTED_REQUESTS if final.since else np.nan
    effect_sizes = {effect.cause: effect.value for effect in final.effects}
    return ChangeResult(delay, alarm_verdict and alarm_verdict.cause, since_error, effect_sizes)


def select_step(stream: ImageFeatures, start: int) -> ImageFeatures:
    """Return the images of the step that begins at an index."""
    return stream.select(list(range(start, start + STEP_SIZE)))


def measure_max_shift(profile: ReferenceProfile, drifted: ImagePool) -> float:
    """Return the largest shift of any image statistic, in standard deviations."""
    drifted_features = drifted.image_features(profile.baseline.random_fourier, profile.baseline.temperature)
    return float(np.abs(profile.baseline.usual.scores(drifted_features).mean(0)).max())


def format_size_error(name: str, results: list[ChangeResult]) -> str:
    """Format the median and largest relative error of the estimated size: of the kelvin, or of the gain."""
    if name not in TRUE_EFFECT_SIZES:
        return ""
    cause, true_size = TRUE_EFFECT_SIZES[name]
    estimates = np.array([result.effect_sizes.get(cause, np.nan) for result in results])
    is_kelvin = cause == "colour temperature"
    errors = np.abs(estimates / true_size - 1) if is_kelvin else np.abs(2 ** (estimates - true_size) - 1)
    return f"{np.median(errors):.1%}, {errors.max():.1%}"


def format_table_row(
    name: str, results: list[ChangeResult], goal: int | None, true_cause: str, max_shift: float | None
) -> str:
    """Format the results of one change as a row of the table."""
    delays = [result.delay if result.delay is not None else MAX_DRIFTED_REQUESTS for result in results]
    median, late = np.median(delays), np.quantile(delays, 0.9)
    bound = "" if max_shift is None else f"{2 * np.log(RUN_LENGTH) / max_shift**2:.0f}"
    right = sum(result.cause == true_cause for result in results)
    since_error = np.nanmax([result.since_error for result in results])
    return (
        f"| {name} | {'' if max_shift is None else f'{max_shift:.2f}'} | {bound} | {goal or ''} | {median:.0f}"
        f" | {late:.0f} | {right} of {len(results)} | {since_error:.0%} | {format_size_error(name, results)} |"
    )


TABLE_HEADER = [
    "| change | sd | 2 ln(ARL)/sd^2 | goal | median delay | 90 % | cause right | since: off | size: off, at most |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]
