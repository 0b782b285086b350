"""A batch that grows on the way, from settings whose examples to each target are known."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from equipoise.planning.targets.batch_schedule import (
    StageCandidate,
    choose_settings,
    find_distinct_targets,
    plan_batch_schedule,
)

TARGETS = (2.4, 2.2, 2.0)


def build_candidate(batch, examples, step_seconds=1.0, workers=1, draws=None):
    """Build a setting; its draws are its examples unless others are given."""
    examples = np.array(examples, float)
    return StageCandidate(
        nodes=1,
        workers=workers,
        batch=batch // workers,
        step_seconds=step_seconds,
        lrs=tuple(0.01 * (index + 1) for index in range(len(examples))),
        examples=examples,
        example_draws=examples[:, None] if draws is None else np.array(draws, float),
    )


SMALL = build_candidate(10, [100, 300, 900])  # 10, 20 and 60 s
LARGE = build_candidate(40, [800, 1200, 2000])  # 20, 10 and 20 s


def test_each_stage_takes_the_setting_that_is_fastest_for_it():
    schedule = plan_batch_schedule(TARGETS, LARGE, [SMALL, LARGE])
    assert [(stage.until, stage.batch, stage.examples, stage.seconds) for stage in schedule.stages] == [
        (2.4, 10, 100, 10),
        (2.2, 40, 400, 10),
        (2.0, 40, 800, 20),
    ]
    assert [stage.lr for stage in schedule.stages] == [0.01, 0.02, 0.03]
    assert (schedule.seconds, schedule.constant_seconds) == (40, 50)
    assert schedule.gain == pytest.approx(0.2) and not schedule.is_constant


def test_stages_with_one_setting_are_described_as_one():
    schedule = plan_batch_schedule(TARGETS, LARGE._replace(lrs=(0.1, 0.1, 0.1)), [SMALL])
    assert schedule.describe_gain().startswith("1 worker x 10 at lr 0.01 until 2.4, 1 worker x 40 at lr 0.1 until 2;")
    alternating = plan_batch_schedule(TARGETS, LARGE._replace(lrs=(0.1, 0.2, 0.1)), [build_candidate(1, [1, 2, 9999])])
    assert [stage.lr for stage in alternating.stages] == [0.01, 0.02, 0.1]
    settings = "1 worker x 1 at lr 0.01 until 2.4, 1 worker x 1 at lr 0.02 until 2.2, 1 worker x 40 at lr 0.1 until 2;"
    assert alternating.describe_gain().startswith(settings)


def test_stages_are_all_of_the_constant_plan_where_nothing_else_is_faster():
    schedule = plan_batch_schedule(TARGETS, LARGE, [build_candidate(40, [8000, 9000, 12000])])
    assert schedule.is_constant and schedule.seconds == schedule.constant_seconds == 50
    assert schedule.gain == 0 and schedule.faster_share == 0


def test_batch_never_shrinks_on_the_way():
    early, late = build_candidate(40, [40, 440, 840]), build_candidate(10, [100, 150, 200])
    schedule = plan_batch_schedule(TARGETS, early, [late])  # 1, 10, 10 s against 10, 5, 5 s
    assert [stage.batch for stage in schedule.stages] == [10, 10, 10] and schedule.seconds == 20


def test_settings_of_one_batch_may_follow_each_other_in_any_order():
    one, two = build_candidate(20, [20, 400]), build_candidate(20, [200, 220], workers=2)
    assert choose_settings([one, two]) == choose_settings([two, one]) == [one, two]
    one, two = build_candidate(20, [200, 220]), build_candidate(20, [20, 400], workers=2)
    assert choose_settings([one, two]) == choose_settings([two, one]) == [two, one]


def test_faster_share_counts_the_draws_in_which_the_stages_take_less_time():
    small = build_candidate(10, [100, 300, 900], draws=[[100, 300, 100, 190], [300, 500, 300, 400], [900] * 4])
    large = build_candidate(40, [800, 1200, 2000], draws=[[800] * 4, [1200] * 4, [2000] * 4])
    assert plan_batch_schedule(TARGETS, large, [small]).faster_share == 0.75


def test_targets_that_the_constant_plan_cannot_tell_apart_are_one_stage():
    coarse = build_candidate(40, [1200, 1200, 2000])
    assert [stage.until for stage in plan_batch_schedule(TARGETS, coarse, [SMALL]).stages] == [2.2, 2.0]
    assert plan_batch_schedule(TARGETS, build_candidate(40, [2000, 2000, 2000]), [SMALL]) is None
    assert find_distinct_targets(np.array([5.0, 3.0, 4.0, 4.0, 9.0])) == [1, 3, 4]


def test_setting_whose_examples_do_not_grow_from_target_to_target_takes_no_part():
    rough = build_candidate(10, [10, 9, 20])
    assert plan_batch_schedule(TARGETS, LARGE, [rough]).is_constant


@pytest.mark.parametrize("seed", range(30))
def test_schedule_is_the_best_of_all_and_never_slower_than_the_constant_plan(seed):
    rng = np.random.default_rng(seed)
    settings = [
        build_candidate(batch, np.cumsum(rng.uniform(10, 1000, 3)), rng.uniform(0.1, 2))
        for batch in sorted(rng.choice(np.arange(8, 64), 5, replace=False).tolist())
    ]
    constant = settings[rng.integers(5)]
    schedule = plan_batch_schedule(TARGETS, constant, settings)
    every = [
        sum(setting.stage_seconds[stage] for stage, setting in enumerate(chosen))
        for chosen in combinations_with_replacement(settings, 3)
    ]
    assert schedule.seconds == pytest.approx(min(every))
    assert schedule.seconds <= schedule.constant_seconds * (1 + 1e-12)
    assert np.all(np.diff([stage.global_batch for stage in schedule.stages]) >= 0)
    assert sum(stage.seconds for stage in schedule.stages) == schedule.seconds
