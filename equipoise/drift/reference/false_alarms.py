"""Check of the false-alarm rate: alarms counted on streams of held-out images that thresholds were not fitted to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import ClassStatistics, ImageFeatures
from equipoise.drift.charts.cusum import (
    MIN_STEP_IMAGES,
    MIN_STREAM_IMAGES,
    CusumState,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.reference.thresholds import STREAM_COUNT, Calibration, SimulatedStreams
from equipoise.type_aliases import FloatArray

CHECK_RUN_LENGTH = 2000.0  # images per false alarm: few, so that some are seen
CHECK_STREAM_IMAGES = 1024  # images per stream


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

    @property
    def images_per_alarm(self) -> float:
        """Images per false alarm."""
        return self.pictures / max(self.alarms, 1)


def count_false_alarms(
    class_statistics: ClassStatistics,
    calibration: Calibration,
    image_features: ImageFeatures,
    labels: NDArray[np.int64],
    seed: int = 0,
) -> FalseAlarmCheck:
    """Count false alarms on streams drawn with replacement from held-out images and their labels."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = SimulatedStreams.from_references(
        [class_statistics], class_statistics.counts[None], image_features, labels, 1.0, rng
    )
    state = initial_cusum_state(
        build_cusum_parameters(class_statistics),
        streams.scores.shape[1],
        image_features.fourier_features.shape[1],
        STREAM_COUNT,
    )
    age, alarms = np.zeros(STREAM_COUNT), 0
    for _ in range(CHECK_STREAM_IMAGES // MIN_STEP_IMAGES):
        state.update(streams.draw_step_sums(MIN_STEP_IMAGES, rng))
        alarms += len(find_and_reset_alarms(state, calibration, CHECK_RUN_LENGTH, MIN_STEP_IMAGES, age))
    return FalseAlarmCheck(CHECK_RUN_LENGTH, STREAM_COUNT * CHECK_STREAM_IMAGES, alarms, len(labels))


def find_and_reset_alarms(
    state: CusumState, calibration: Calibration, run_length: float, step_size: int, ages: FloatArray
) -> NDArray[np.int64]:
    """Return the highest chart of each stream that alarms after a step; reset these streams and their ages."""
    ages += step_size
    conditions = np.full(state.streams, float(step_size)), state.runs.mean_run_length()
    scaled = calibration.scale_values(state.values(), *conditions)
    alarming = np.flatnonzero(
        (scaled.max(1) >= calibration.threshold(run_length, *conditions)) & (ages >= MIN_STREAM_IMAGES)
    )
    state.reset(alarming)
    ages[alarming] = 0
    return np.asarray(scaled[alarming].argmax(1))
