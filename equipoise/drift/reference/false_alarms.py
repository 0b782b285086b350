"""Check of the false-alarm rate: alarms counted on streams of held-out images that thresholds were not fitted to.

The held-out images are few: their own means are off by chance, which raises alarms that new images would not. By how
much, and how far the count may be off, is measured on streams that draw from samples of these images, drawn with
replacement: they differ from the held-out images as these do from all others.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.cell_statistics import ClassStatistics
from equipoise.drift.charts.cusum import (
    MIN_STEP_IMAGES,
    MIN_STREAM_IMAGES,
    CusumState,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.reference.simulated_streams import (
    STREAM_COUNT,
    LabelledFeatures,
    SimulatedStreams,
    resample_run_groups,
)
from equipoise.drift.reference.thresholds import Calibration
from equipoise.planning.interval import IntervalEstimate
from equipoise.proportions import Z_95
from equipoise.type_aliases import FloatArray

CHECK_RUN_LENGTH = 2000.0  # images per false alarm: few, so that some are seen
CHECK_STREAM_IMAGES = 1024  # images per stream
RESAMPLE_COUNT = 32  # samples of the held-out images, each for some of the streams


@dataclass(frozen=True)
class FalseAlarmCheck:
    """False alarms counted on held-out images."""

    asked: float
    """requested images per false alarm"""
    pictures: int
    """images in all streams"""
    alarms: int
    """false alarms in all streams"""
    held_out: int
    """held-out images that the streams repeat"""
    resampled_alarms: int
    """false alarms in as many streams of samples of the held-out images"""
    log_spread: float
    """standard deviation of the logarithm of the alarms of a sample, beyond that of chance"""

    @property
    def images_per_alarm(self) -> float:
        """Images per false alarm, as counted."""
        return self.pictures / max(self.alarms, 1)

    @property
    def estimate(self) -> IntervalEstimate:
        """Images per false alarm that new images would give, with a 95 % interval.

        The samples raise as many more alarms than the held-out images as these do than new ones.
        """
        counted, resampled = self.alarms + 0.5, self.resampled_alarms + 0.5
        value = self.pictures / (counted**2 / resampled)
        log_error = np.sqrt((2 * self.log_spread) ** 2 + 4 / counted + 1 / resampled)
        factor = float(np.exp(Z_95 * log_error))
        return IntervalEstimate(value=value, low=value / factor, high=value * factor)


def count_false_alarms(
    class_statistics: ClassStatistics,
    calibration: Calibration,
    images: LabelledFeatures,
    condition_count: int = 1,
    seed: int = 0,
) -> FalseAlarmCheck:
    """Count false alarms on streams drawn with replacement from held-out images, and how far the count may be off."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = SimulatedStreams.from_references([class_statistics], class_statistics.counts[None], images, 1.0, rng)
    alarms = int(count_alarms_by_stream(streams, class_statistics, calibration, condition_count, rng).sum())
    samples = resample_run_groups(images, RESAMPLE_COUNT, rng)
    streams = replace(streams, resamples=samples[np.arange(STREAM_COUNT) % RESAMPLE_COUNT])
    by_stream = count_alarms_by_stream(streams, class_statistics, calibration, condition_count, rng)
    by_sample = np.bincount(np.arange(STREAM_COUNT) % RESAMPLE_COUNT, by_stream, RESAMPLE_COUNT)
    return FalseAlarmCheck(
        asked=CHECK_RUN_LENGTH,
        pictures=STREAM_COUNT * CHECK_STREAM_IMAGES,
        alarms=alarms,
        held_out=len(images.labels),
        resampled_alarms=int(by_sample.sum()),
        log_spread=log_spread_between(by_sample.astype(np.float64)),
    )


def count_alarms_by_stream(
    streams: SimulatedStreams,
    class_statistics: ClassStatistics,
    calibration: Calibration,
    condition_count: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return (streams,) the false alarms of each stream."""
    state = initial_cusum_state(
        build_cusum_parameters(class_statistics, condition_count=condition_count),
        streams.scores.shape[1],
        streams.images.features.fourier_features.shape[1],
        STREAM_COUNT,
    )
    age, alarms = np.zeros(STREAM_COUNT), np.zeros(STREAM_COUNT, np.int64)
    for _ in range(CHECK_STREAM_IMAGES // MIN_STEP_IMAGES):
        state.update(streams.draw_step_sums(MIN_STEP_IMAGES, rng))
        alarming, _ = find_and_reset_alarms(state, calibration, CHECK_RUN_LENGTH, MIN_STEP_IMAGES, age)
        alarms[alarming] += 1
    return alarms


def log_spread_between(counts: FloatArray) -> float:
    """Return the standard deviation of the logarithm of the rates behind counts of events.

    Counts of one rate vary by their mean, as in a Poisson process; what they vary by beyond it is due to the rates.
    """
    mean = max(float(counts.mean()), 0.5)
    return float(np.sqrt(max(float(counts.var(ddof=1)) - mean, 0.0)) / mean)


def find_and_reset_alarms(
    state: CusumState, calibration: Calibration, run_length: float, step_size: int, ages: FloatArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the streams that alarm after a step and the highest chart of each; reset these streams and their ages."""
    ages += step_size
    step_and_run = np.full(state.streams, float(step_size)), state.runs.mean_run_length()
    scaled = calibration.scale_values(state.values(), *step_and_run)
    alarming = np.flatnonzero(
        (scaled.max(1) >= calibration.threshold(run_length, *step_and_run)) & (ages >= MIN_STREAM_IMAGES)
    )
    state.reset(alarming)
    ages[alarming] = 0
    return alarming, scaled[alarming].argmax(1)
