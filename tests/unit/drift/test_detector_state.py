"""A detector is restored to the bit, and its state stays small."""

import numpy as np

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from tests.support.drift_data import shapes_profile
from tests.support.drift_streams import (
    RUN_LENGTH_IMAGES,
    STEP_IMAGES,
    apply_warm_light,
    feed_steps,
    render_clean_images,
    run_detector,
    sum_by_step,
)
from tests.support.errors import raises_code


def test_restored_detector_continues_bit_equal():
    steps = [
        *sum_by_step(render_clean_images(488, 50), 8),
        *sum_by_step(apply_warm_light(render_clean_images(488, 51)), 8),
    ]
    for cut in (1, 40, 90):
        detector, restored = (
            StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES),
            StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES),
        )
        alarms = feed_steps(detector, steps[:cut])
        restored.restore(detector.state_arrays())
        assert restored.alarm == detector.alarm
        assert feed_steps(detector, steps[cut:], cut) == feed_steps(restored, steps[cut:], cut)
        assert alarms or detector.alarm
        assert_equal_detectors(detector, restored)


def test_steps_over_the_threshold_are_restored():
    state = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES).state_arrays()
    restored = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES)
    restored.restore(state | {"over": np.array(3)})
    assert restored.over == 3


def assert_equal_detectors(left, right):
    left_state, right_state = left.state_arrays(), right.state_arrays()
    assert left_state.keys() == right_state.keys()
    for name in left_state:
        np.testing.assert_array_equal(left_state[name], right_state[name], name)
    assert compute_stream_verdict(left) == compute_stream_verdict(right)


def test_state_of_another_dtype_or_shape_is_refused():
    detector = run_detector(render_clean_images(160))
    state = detector.state_arrays()
    for name in ("charts.scores", "charts.rest", "runs.share", "wealth", "rows"):
        for array in (state[name].astype(np.float32), state[name][..., :-1]):
            with raises_code("state-invalid"):
                StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES).restore(state | {name: array})


def test_state_stays_small_on_long_streams():
    detector = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES)
    (row,) = sum_by_step(render_clean_images(STEP_IMAGES))
    feed_steps(detector, [row] * (512 + 20))
    assert sum(array.nbytes for array in detector.state_arrays().values()) < 1 << 20
    assert detector.observed_images == (512 + 20) * STEP_IMAGES and len(detector.rows) == 512


def test_images_too_few_for_a_step_count_once_the_step_is_full():
    single, stepwise = (
        StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES),
        StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES),
    )
    feed_steps(single, sum_by_step(render_clean_images(320, 54), 1))
    feed_steps(stepwise, sum_by_step(render_clean_images(320, 54)))
    single.times = stepwise.times
    assert_equal_detectors(single, stepwise)
