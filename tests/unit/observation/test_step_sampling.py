"""Tests of which steps are timed by part, and of how often norms are measured."""

import pytest

from equipoise.observation.step_sampling import (
    BLOCK_STEPS,
    LAP_STEPS,
    MAX_LAP_SHARE,
    MAX_LAP_STEPS,
    MAX_NORM_SHARE,
    MAX_PARTS_EVERY,
    MAX_PARTS_SHARE,
    MIN_LAP_SECONDS,
    NOISE_SCALE_EVERY,
    OWN_SPANS,
    PARTS_EVERY,
    SAMPLED_SPANS,
    TIMED_STEP_SECONDS,
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
    first = default.choose_lap_steps(), default.choose_parts_every(), default.first_norm_interval
    assert first == (LAP_STEPS, PARTS_EVERY, NOISE_SCALE_EVERY) == (100, 5, 10)


def test_short_steps_are_measured_less_often_unless_the_caller_says_how_often():
    cadence = MeasurementCadence()
    for seconds in (1e-5, 3e-4, 2e-3, 8e-3, 0.1):
        lap_steps, every = cadence.choose_lap_steps(seconds), cadence.choose_parts_every(seconds)
        assert cadence.choose_parts_every(seconds, has_exchange=True) >= every
        assert lap_steps == MAX_LAP_STEPS or lap_steps * seconds >= MIN_LAP_SECONDS
        assert every == MAX_PARTS_EVERY or TIMED_STEP_SECONDS / every <= MAX_PARTS_SHARE * seconds
        assert lap_steps >= LAP_STEPS and every % PARTS_EVERY == 0
    assert (cadence.choose_lap_steps(0.1), cadence.choose_parts_every(0.1)) == (LAP_STEPS, PARTS_EVERY)
    assert 0.002 / (cadence.choose_lap_steps(0.01, end_seconds=0.002) * 0.01) == pytest.approx(MAX_LAP_SHARE)
    given = MeasurementCadence(lap_steps=7, parts_every=3)
    assert (given.choose_lap_steps(1e-5, 1.0), given.choose_parts_every(1e-5, True)) == (7, 3)


@pytest.mark.parametrize("every", [2, 5, 20, 40])
def test_untimed_steps_are_counted_up_to_a_timed_one_or_the_end_of_their_stretch(every):
    sampling = StepSampling(every)
    timed = set(list_timed(every, 30 * every * BLOCK_STEPS))
    for step in set(range(29 * every * BLOCK_STEPS)) - timed:
        end = step + sampling.count_untimed_steps(step)
        assert not timed & set(range(step, end))
        assert end in timed or end % (every * BLOCK_STEPS) == 0


def test_blocks_are_timed_as_often_after_their_number_has_changed():
    sampling = StepSampling(PARTS_EVERY)
    sampling.every = 20
    names = [sampling.choose_spans(step) for step in range(100 * 20 * BLOCK_STEPS)]
    assert names[: PARTS_EVERY * BLOCK_STEPS] == [OWN_SPANS] * PARTS_EVERY * BLOCK_STEPS
    assert names.count(SAMPLED_SPANS) in (99 * BLOCK_STEPS, 100 * BLOCK_STEPS)


def test_seconds_of_untimed_steps_are_computing_until_a_step_was_timed_for_others():
    sampling = StepSampling(5)
    assert sampling.sum_parts({"compute": 1.0, "untimed": 2.0, "data": 0.5}) == {"compute": 3.0, "data": 0.5}
    seconds = {"sampled compute": 3.0, "sampled exchange": 1.0, "untimed": 8.0}
    assert sampling.sum_parts(seconds) == {"compute": 9.0, "exchange": 3.0}
    assert sampling.sum_parts({"untimed": 4.0, "data": 1.0}) == {"data": 1.0, "compute": 3.0, "exchange": 1.0}
