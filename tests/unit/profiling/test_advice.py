"""Predicted gains are what the parts of a step say, the largest first, and losses in waiting come before the work."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.interval import IntervalEstimate
from equipoise.profiling.advice import add_advice, fit_batch_line, list_worthwhile
from equipoise.profiling.losses import list_losses, rank_losses, saved_by_layer, volume_share
from equipoise.profiling.profile_report import PassRatio, ProfileReport, Proposal, ShortTimings
from tests.support.errors import raises_code
from tests.support.profile_reports import build_layer, build_parts, build_profile_report, build_sync_point


def gains_by_name(report):
    return {proposal.name: proposal.gain.value for proposal in add_advice(report).proposals}


def test_gains_follow_from_the_parts_of_a_step():
    gains = gains_by_name(build_profile_report())
    assert gains["double batch"] == pytest.approx(2 * 0.1 / (0.06 + 64 * 0.00125))
    assert gains["gradient accumulation"] == pytest.approx(2 * 100 / (200 - 50))
    assert gains["one worker fewer"] == pytest.approx(100 / 75 / 2)
    assert gains["twice the link"] == pytest.approx(100 / (100 - 25 * 11 / 12 / 2))
    assert gains["bf16"] == pytest.approx(100 / (100 - 25))
    assert "loader as fast as the step" not in gains and "more readers" not in gains


def test_proposals_are_sorted_by_gain_and_intervals_hold_their_values():
    proposals = add_advice(build_profile_report()).proposals
    assert [row.gain.value for row in proposals] == sorted((row.gain.value for row in proposals), reverse=True)
    for row in proposals:
        assert row.gain.low < row.gain.value < row.gain.high
        assert row.gain.low * row.gain.high == pytest.approx(row.gain.value**2)


def test_larger_gains_and_noisier_timings_have_wider_intervals():
    def width(report, name):
        (gain,) = (row.gain for row in add_advice(report).proposals if row.name == name)
        return gain.high / gain.low

    report = build_profile_report()
    noisy = replace(report, steps=replace(report.steps, pace_sd=0.2))
    assert width(noisy, "bf16") > width(report, "bf16")
    slow_passes = replace(report.timings, pass_ratios={"bf16": PassRatio(ratio=0.9, log_sd=0.01)})
    assert width(report, "bf16") > width(replace(report, timings=slow_passes), "bf16")


@pytest.mark.parametrize(
    ("under_data", "gain"), [(0, 100 / 60), (15, 100 / 75), (40, 1.0)], ids=["alone", "over a sum", "within a sum"]
)
def test_loader_gains_what_the_exchange_does_not_take_in_its_place(under_data, gain):
    parts = build_parts(data=40, forward=20, backward=20, exchange_under_data=under_data)
    assert gains_by_name(build_profile_report([parts]))["loader as fast as the step"] == pytest.approx(gain)


@pytest.mark.parametrize(
    ("data", "alone", "gain"), [(60, 30, 100 / 30), (60, 50, 100 / 40), (15, 25, 100 / 77.5)], ids=str
)
def test_passes_that_start_cold_after_a_wait_are_shorter_without_it(data, alone, gain):
    parts = build_parts(data=data, forward=20, backward=100 - data - 20 if data == 60 else 20)
    timings = ShortTimings(pass_seconds=alone / 1000)
    assert gains_by_name(build_profile_report([parts], timings=timings))["loader as fast as the step"] == pytest.approx(
        gain
    )


def test_readers_are_proposed_where_examples_are_read_ahead_and_halve_a_step_at_most():
    report = build_profile_report([build_parts(data=80, forward=10)], threads=3)
    read_ahead = replace(report, timings=ShortTimings(is_read_ahead=True))
    (proposal,) = (row for row in add_advice(read_ahead).proposals if row.name == "more readers")
    assert proposal.options == {"threads": 6} and proposal.gain.value == pytest.approx(2)
    assert gains_by_name(read_ahead)["loader as fast as the step"] == pytest.approx(5)


def test_more_readers_leave_passes_as_cold_as_they_are():
    timings = ShortTimings(is_read_ahead=True, pass_seconds=0.03)
    gains = gains_by_name(build_profile_report([build_parts(data=40, forward=20, backward=40)], timings=timings))
    assert gains["more readers"] == pytest.approx(100 / 60) and gains["loader as fast as the step"] > 100 / 40


def test_more_readers_than_cpus_may_gain_nothing():
    report = build_profile_report([build_parts(data=40, forward=60)], timings=ShortTimings(is_read_ahead=True))
    few = replace(report, machine=replace(report.machine, cores=2))
    (free, shared) = (
        next(row for row in add_advice(each).proposals if row.name == "more readers") for each in (report, few)
    )
    assert shared.gain.value == pytest.approx(free.gain.value**0.5) and shared.gain.low < 1 < shared.gain.value
    assert shared.gain.high > free.gain.value and "there are 2 CPUs" in shared.reason


def test_each_line_that_waits_is_proposed_to_go_and_named_first():
    parts = [build_parts(sync=40, forward=30, backward=20), build_parts(sync=35, forward=30, backward=20)]
    report = build_profile_report(parts, sync_points=[build_sync_point(0.03), build_sync_point(0.001, line=40)])
    advised = add_advice(report)
    assert advised.losses[0].name == "all_reduce at mine.py:12" and advised.losses[0].kind == "sync"
    assert gains_by_name(report)["no all_reduce at mine.py:12"] == pytest.approx(100 / 70)
    assert "no all_reduce at mine.py:40" not in gains_by_name(report)
    assert gains_by_name(report)["one worker fewer"] == pytest.approx(100 / (100 - 2.5 - 31) / 2)


def test_cheaper_pass_gains_nothing_where_steps_wait_for_readers():
    report = build_profile_report([build_parts(data=30, forward=30, backward=30)])
    waiting = replace(report, timings=replace(report.timings, is_read_ahead=True))
    assert gains_by_name(report)["bf16"] == pytest.approx(100 / 70) and gains_by_name(waiting)["bf16"] == 1
    slower = replace(waiting.timings, pass_ratios={"bf16": PassRatio(ratio=2.0, log_sd=0.01)})
    assert gains_by_name(replace(waiting, timings=slower))["bf16"] == pytest.approx(100 / (100 - 30 + 60))


def test_pass_that_is_cheaper_hides_less_of_the_exchange():
    parts = build_parts(forward=20, backward=40, exchange=10, hidden_exchange=35)
    report = build_profile_report([parts, parts])
    assert gains_by_name(report)["bf16"] == pytest.approx(100 / (100 - 30 + 15))


def test_what_is_lost_in_waiting_comes_before_the_work():
    layers = [build_layer("small", 0.02), build_layer("wide", 0.5)]
    report = build_profile_report([build_parts(data=10, forward=80)], layers=layers)
    assert [loss.kind for loss in rank_losses(report)] == ["data", "layer", "layer", "optimizer"]
    assert rank_losses(report)[1].name == "layer wide: Linear"
    busy = build_profile_report([build_parts(data=2, forward=90)], layers=layers)
    assert [loss.kind for loss in rank_losses(busy)] == ["layer", "layer", "optimizer", "data"]


def test_layer_saves_its_passes_and_the_update_and_exchange_of_its_weights():
    layers = [replace(build_layer(name, 0.02), parameter_bytes=count) for name, count in (("a", 1000), ("b", 9000))]
    alone = build_profile_report([build_parts(forward=60, backward=30)], layers=layers)  # 10 ms of optimizer
    assert saved_by_layer(alone, layers[1]) == pytest.approx(0.02 + 0.9 * 0.01)
    (loss,) = (loss for loss in list_losses(alone) if loss.name == "layer b: Linear")
    assert loss.seconds == pytest.approx(0.02) and loss.gain.value == pytest.approx(100 / (100 - 29))
    two = [build_parts(forward=30, backward=30, exchange=30), build_parts(forward=40, backward=30, exchange=12)]
    shared = saved_by_layer(build_profile_report(two, layers=layers), layers[0])  # 11 of 12 parts depend on the bytes
    assert shared == pytest.approx(0.02 + 0.1 * (0.01 + 0.012 * 11 / 12))
    without_weights = [replace(layer, parameter_bytes=0) for layer in layers]
    assert saved_by_layer(build_profile_report(two, layers=without_weights), without_weights[0]) == pytest.approx(0.02)


def test_worker_that_others_wait_for_is_named():
    parts = [build_parts(forward=30, exchange=50), build_parts(forward=75, exchange=10)]
    losses = {loss.kind: loss for loss in rank_losses(build_profile_report(parts))}
    assert losses["imbalance"].name == "waiting for worker 1, the slowest"
    assert losses["imbalance"].seconds == pytest.approx(0.02)
    assert losses["exchange"].seconds == pytest.approx(0.01)


def test_nothing_is_worth_trying_where_gains_are_within_noise():
    report = build_profile_report([build_parts(forward=40, backward=58)], timings=ShortTimings())
    assert list_worthwhile(add_advice(report)) == []
    gains = [row.name for row in list_worthwhile(add_advice(build_profile_report()))]
    assert gains == ["double batch", "gradient accumulation", "bf16", "twice the link"]


def test_line_through_step_times_has_no_negative_part():
    assert fit_batch_line({8: 0.07, 16: 0.08, 32: 0.1}) == pytest.approx((0.06, 0.00125))
    assert fit_batch_line({8: 0.01, 32: 0.1}) == pytest.approx((0.0, np.mean([0.01 / 8, 0.1 / 32])))
    assert fit_batch_line({8: 0.1, 32: 0.08}) == pytest.approx((0.09, 0.0))


def test_share_of_bytes_in_a_sum():
    assert volume_share({1000: 0.002, 11_000: 0.012}, 11_000) == pytest.approx(11 / 12)
    assert volume_share({1000: 0.01, 11_000: 0.01}, 11_000) == 0
    assert volume_share({1000: 0.001, 10_000: 0.01}, 5000) == pytest.approx(1)


@pytest.mark.parametrize(("tried", "verdict"), [(None, None), (1.3, "confirmed"), (1.0, "refuted"), (2.0, "refuted")])
def test_verdict_is_whether_the_interval_holds_what_was_measured(tried, verdict):
    gain = IntervalEstimate(value=1.25, low=1.1, high=1.4)
    proposal = Proposal(name="x", action="y", gain=gain, reason="z", tried_gain=tried)
    assert proposal.verdict == verdict


def test_profile_is_read_as_it_was_written():
    report = add_advice(build_profile_report(sync_points=[build_sync_point(0.02)]))
    assert ProfileReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("change", [{"schema": 2}, {"steps": None}, {"nodes": 0}])
def test_damaged_profile_is_refused(change):
    with raises_code("file-damaged"):
        ProfileReport.from_json(build_profile_report().to_json() | change)
