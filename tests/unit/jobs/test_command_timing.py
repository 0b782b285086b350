"""Which settings of a command are timed, and what its laps say of a step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.record import Lap, Record
from equipoise.runs.target import Target
from jobs.user_command.command_timing import (
    CommandTiming,
    group_into_stretches,
    order_by_worth,
    require_distant_target,
    require_timed_laps,
    summarize_laps,
    time_batches,
    time_settings,
)

BATCHES = [8, 16, 32, 64, 128]


def build_lap(examples, seconds):
    return Lap(step=1, steps=1, seen=examples, examples=examples, workers=1, seconds=seconds)


def build_record(*laps, workers=1, batch_size=10):
    return Record(
        config=TrainConfig(command="x", workers=workers, batch_size=batch_size),
        machine=HardwareFacts(),
        laps=laps,
        status="running",
        target=None,
        examples_to_target=None,
        test=None,
    )


def fake_timing(workers, batch, elapsed_seconds=0.0):
    return CommandTiming(workers, batch, 0.001 * batch, 0.0, elapsed_seconds)


@pytest.mark.parametrize(
    ("metric", "target", "is_refused"),
    [
        (0.9, Target(value=0.1), True),
        (0.05, Target(value=0.1), False),
        (0.9, Target(value=0.1, lower_is_better=True), False),
        (0.05, Target(value=0.1, lower_is_better=True), True),
        (None, Target(value=0.1), False),
    ],
)
def test_a_target_that_the_first_metric_has_reached_is_refused(metric, target, is_refused):
    laps = [replace(build_lap(10, 1.0), metric=metric), replace(build_lap(20, 1.0), metric=0.5)]
    if metric is None:
        laps = laps[:1]
    if not is_refused:
        require_distant_target(laps, target)
        return
    with pytest.raises(EquipoiseError) as refusal:
        require_distant_target(laps, target)
    assert ("--lower-is-better" in str(refusal.value)) == (not target.lower_is_better)


def test_a_command_that_fails_before_it_has_reported_enough_is_refused():
    record = build_record(*[build_lap(10, 1.0)] * 4)
    require_timed_laps(record, 5.0, "")
    failed = replace(record, status="failed", reason="it went backwards")
    require_timed_laps(failed, 5.0, "")  # enough to time a step
    with pytest.raises(EquipoiseError, match="at 1 worker x 10: it went backwards"):
        require_timed_laps(replace(failed, laps=failed.laps[:2]), 5.0, "")
    with pytest.raises(EquipoiseError, match="no examples within 5 s; it printed nothing"):
        require_timed_laps(replace(record, laps=[]), 5.0, "it printed nothing")


def test_ends_come_first_then_the_widest_gaps():
    assert order_by_worth(BATCHES) == [8, 128, 32, 16, 64]


@given(st.sets(st.integers(1, 10_000), min_size=1))
def test_every_batch_size_comes_once(batches):
    assert sorted(order_by_worth(list(batches))) == sorted(batches)


def test_a_step_takes_the_seconds_of_the_laps_after_the_first():
    timing = summarize_laps(build_record(build_lap(10, 5.0), build_lap(100, 1.0), build_lap(200, 2.0)), 9.0)
    assert timing == CommandTiming(1, 10, pytest.approx(0.1), 0.0, 9.0)


def test_the_only_lap_counts_as_it_is():
    assert summarize_laps(build_record(build_lap(100, 5.0), workers=2), 9.0).seconds == pytest.approx(1.0)


def test_short_laps_are_measured_together():
    laps = [build_lap(10, seconds) for seconds in (0.1, 0.1, 0.2, 0.05, 0.1)]
    assert [len(stretch) for stretch in group_into_stretches(laps)] == [2, 1, 2]
    assert [len(stretch) for stretch in group_into_stretches(laps[:4])] == [2, 2]


def test_all_settings_are_timed_while_there_is_time():
    timings = time_settings({1: BATCHES, 2: BATCHES[:2]}, lambda *setting: fake_timing(*setting[:2]), 60)
    assert sorted(timing[:2] for timing in timings) == [*((1, batch) for batch in BATCHES), (2, 8), (2, 16)]


def test_slow_commands_are_timed_at_fewer_settings_than_asked():
    timings = time_settings(
        {1: BATCHES}, lambda workers, batch, _: fake_timing(workers, batch, 50.0 * (batch == 128)), 30
    )
    assert [timing.batch for timing in timings] == [8, 128]


def test_a_budget_without_time_for_two_batch_sizes_is_refused_with_one_that_would_do():
    with pytest.raises(EquipoiseError, match="--budget-seconds 380") as refusal:
        time_settings({1: BATCHES}, lambda workers, batch, _: fake_timing(workers, batch, 50.0), 30)
    assert refusal.value.code == "budget-too-small"


def test_a_batch_size_at_which_the_command_fails_ends_the_list(capsys):
    def time_setting(workers, batch, _):
        if batch > 40:
            raise EquipoiseError("command-unusable", f"out of memory at {batch}")
        return fake_timing(workers, batch)

    assert [timing.batch for timing in time_batches(1, BATCHES, time_setting, float("inf"))] == [8, 32, 16]
    assert capsys.readouterr().out == "left out: out of memory at 128\nleft out: out of memory at 64\n"
    with pytest.raises(EquipoiseError, match="out of memory at 64"):
        time_batches(1, [64, 128], time_setting, float("inf"))
