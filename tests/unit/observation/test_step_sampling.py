"""Tests of which steps are timed by part, and of how often norms are measured."""

import pytest

from equipoise.observation.step_sampling import (
    BLOCK_STEPS,
    MAX_NORM_SHARE,
    NOISE_SCALE_EVERY,
    OWN_SPANS,
    SAMPLED_SPANS,
    UNTIMED_SPANS,
    MeasurementCadence,
    StepSampling,
)
from tests.support.errors import raises_code


def list_timed(every, steps):
    sampling = StepSampling(every)
    return [step for step in range(steps) if sampling.choose_spans(step) is not UNTIMED_SPANS]


def test_first_steps_are_timed_for_themselves_and_one_block_of_each_stretch_for_the_others():
    sampling = StepSampling(5)
    stretch = 5 * BLOCK_STEPS
    names = [sampling.choose_spans(step) for step in range(11 * stretch)]
    assert names[:stretch] == [OWN_SPANS] * stretch and names[stretch] is SAMPLED_SPANS
    for start in range(stretch, 11 * stretch, stretch):
        assert names[start : start + stretch].count(SAMPLED_SPANS) == BLOCK_STEPS


def test_all_steps_are_timed_where_one_in_one_is():
    assert list_timed(1, 30) == list(range(30))


@pytest.mark.parametrize("every", [2, 5, 7])
@pytest.mark.parametrize("period", [2, 3, 5, 8, 10, 50, 100])
def test_steps_at_a_fixed_distance_are_timed_as_often_as_others(every, period):
    timed = [step for step in list_timed(every, 40_000) if step >= every * BLOCK_STEPS]
    for place in range(0, period, max(1, period // 4)):
        count = sum(step % period == place for step in timed)
        assert count == pytest.approx(40_000 / period / every, rel=0.05, abs=10)


def test_cadence_below_one_step_is_refused():
    for name in ("lap_steps", "parts_every"):
        with raises_code("option-range", name):
            MeasurementCadence(**{name: 0})


def test_norms_take_at_most_their_share_unless_their_interval_is_given_or_a_lap_would_have_none():
    interval = MeasurementCadence().choose_norm_interval(0.005, 0.07)
    assert 0.005 / interval <= MAX_NORM_SHARE * 0.07 < 0.005 / (interval - 1)
    assert MeasurementCadence().choose_norm_interval(1e-6, 1.0) == NOISE_SCALE_EVERY
    assert MeasurementCadence(lap_steps=50).choose_norm_interval(1.0, 1e-3) == 50
    assert MeasurementCadence(noise_scale_every=3).choose_norm_interval(1.0, 1e-3) == 3
    assert MeasurementCadence(noise_scale_every=0).first_norm_interval == 0


def test_cadence_of_one_step_is_allowed_and_the_default_times_one_block_in_five():
    cadence = MeasurementCadence(lap_steps=1, parts_every=1)
    assert cadence.choose_norm_interval(1.0, 1e-3) == NOISE_SCALE_EVERY == 10
    default = MeasurementCadence()
    assert (default.lap_steps, default.parts_every, default.first_norm_interval) == (100, 5, 10)


def test_seconds_of_untimed_steps_are_computing_until_a_step_was_timed_for_others():
    sampling = StepSampling(5)
    assert sampling.sum_parts({"compute": 1.0, "untimed": 2.0, "data": 0.5}) == {"compute": 3.0, "data": 0.5}
    seconds = {"sampled compute": 3.0, "sampled exchange": 1.0, "untimed": 8.0}
    assert sampling.sum_parts(seconds) == {"compute": 9.0, "exchange": 3.0}
    assert sampling.sum_parts({"untimed": 4.0, "data": 1.0}) == {"data": 1.0, "compute": 3.0, "exchange": 1.0}
