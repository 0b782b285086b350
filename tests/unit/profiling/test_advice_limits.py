"""From which share of a step something is proposed or called a loss, and what each proposal says."""

from dataclasses import replace

import pytest

from equipoise.planning.interval import IntervalEstimate
from equipoise.profiling.advice import (
    MIN_GAIN,
    add_advice,
    format_milliseconds,
    format_option,
    list_worthwhile,
    propose_cheaper_pass,
    propose_more_readers,
)
from equipoise.profiling.losses import (
    is_lost,
    predict_gain,
    rank_losses,
    saved_by_data,
    saved_gain,
    volume_share,
)
from equipoise.profiling.profile_report import MachineLimits, PassRatio, Proposal, ShortTimings, StepLoss
from tests.support.profile_reports import build_layer, build_parts, build_profile_report, build_sync_point


def find_proposal(report, name):
    return next((proposal for proposal in add_advice(report).proposals if proposal.name == name), None)


@pytest.fixture(scope="module")
def report():
    return build_profile_report(grad_accumulation=3)


def test_double_batch_says_what_it_rests_on(report):
    proposal = find_proposal(report, "double batch")
    assert (proposal.action, proposal.options) == ("--batch-size 64", {"batch_size": 64}) and proposal.changes_learning
    assert proposal.reason == (
        "a step takes 60 ms however small the batch, and 1.25 ms for each example, by steps of 8, 16, 32"
    )
    untimed = replace(report, timings=replace(report.timings, batch_seconds={8: 0.07, 16: 0.08}))
    gain = find_proposal(untimed, "double batch").gain
    assert gain.value == pytest.approx(2 * 0.1 / 0.14)  # over the step of the run itself
    one = replace(report, timings=replace(report.timings, batch_seconds={8: 0.07}))
    assert find_proposal(one, "double batch") is None


def test_accumulation_shares_the_exchange_and_the_optimizer(report):
    proposal = find_proposal(report, "gradient accumulation")
    assert (proposal.action, proposal.options) == ("--grad-accumulation 6", {"grad_accumulation": 6})
    assert proposal.changes_learning and proposal.reason.startswith("the exchange and the optimizer take 50 ms")
    assert find_proposal(build_profile_report(sync="local:4"), "gradient accumulation") is None


@pytest.mark.parametrize(("shared", "is_proposed"), [(2.0, True), (1.99, False)])
def test_two_hundredths_of_a_step_are_worth_a_proposal(shared, is_proposed):
    # the optimizer takes the rest of the step
    parts = build_parts(forward=50, backward=50 - shared, data=0)
    assert bool(find_proposal(build_profile_report([parts]), "gradient accumulation")) == is_proposed
    waiting = build_parts(data=shared, forward=40, backward=40)
    timings = ShortTimings(is_read_ahead=True)
    names = {proposal.name for proposal in add_advice(build_profile_report([waiting], timings=timings)).proposals}
    assert ({"loader as fast as the step", "more readers"} <= names) == is_proposed
    point = build_sync_point(shared / 1000)
    names = {proposal.name for proposal in add_advice(build_profile_report(sync_points=[point])).proposals}
    assert ("no all_reduce at mine.py:12" in names) == is_proposed
    exchange = build_parts(forward=40, exchange=shared)
    assert bool(find_proposal(build_profile_report([exchange, exchange]), "twice the link")) == is_proposed


@pytest.mark.parametrize("options", [{"sharding": "tensor:2"}, {"sync": "server", "servers": 2}], ids=str)
def test_options_that_a_run_would_refuse_are_not_proposed(options):
    names = {proposal.name for proposal in add_advice(build_profile_report(workers=2, **options)).proposals}
    assert "one worker fewer" not in names and "double batch" in names


def test_batches_of_more_than_an_epoch_are_not_proposed(report):
    names = [{proposal.name for proposal in add_advice(report, limit).proposals} for limit in (384, 383)]  # 2 x 32 x 3
    assert names[0] - names[1] == {"double batch", "gradient accumulation"} and names[1]


def test_fewer_workers_exchange_less(report):
    proposal = find_proposal(report, "one worker fewer")
    assert (proposal.action, proposal.options) == ("--workers 1", {"workers": 1}) and proposal.changes_learning
    assert proposal.reason == "a step of 2 workers waits 25 ms of 100 ms more"
    four = build_profile_report([build_parts(forward=20, backward=30, exchange=27)] * 4)
    saved = 0.027 * (1 - (2 / 3) / (3 / 4))
    assert find_proposal(four, "one worker fewer").gain.value == pytest.approx(0.1 / (0.1 - saved) * 3 / 4)
    waits = replace(four, sync_points=(build_sync_point(0.03),))  # three workers would wait there as well
    assert find_proposal(waits, "one worker fewer").gain == find_proposal(four, "one worker fewer").gain
    assert find_proposal(build_profile_report([build_parts(forward=90)]), "one worker fewer") is None


def test_link_of_twice_the_rate_halves_the_bytes_of_a_sum(report):
    proposal = find_proposal(report, "twice the link")
    assert proposal.options == {} and not proposal.changes_learning
    assert proposal.reason == "92% of the time of a sum are its bytes, the rest is delay"
    parts = build_parts(forward=20, exchange=25, hidden_exchange=60, exchange_under_data=10)
    hidden = build_profile_report([parts, parts])  # half of 92 % of 95 ms is more than the 25 ms that are seen
    assert find_proposal(hidden, "twice the link").gain.value == pytest.approx(100 / 75)
    single = replace(report, timings=replace(report.timings, sum_seconds={1000: 0.002}))
    assert find_proposal(single, "twice the link") is None


def test_readers_are_doubled():
    parts = [build_parts(data=30, forward=30, backward=30)]
    report = build_profile_report(parts, timings=ShortTimings(is_read_ahead=True), threads=5)
    proposal = find_proposal(report, "more readers")
    assert (proposal.action, proposal.options) == ("--threads 10", {"threads": 10}) and not proposal.changes_learning
    assert "where 5 cannot keep up" in proposal.reason and proposal.gain.value == pytest.approx(100 / 70)
    assert propose_more_readers(replace(report, timings=ShortTimings())) is None
    loader = find_proposal(report, "loader as fast as the step")
    assert loader.reason == "a step waits 30 ms for batches" and loader.options == {} and not loader.changes_learning


def test_a_line_that_waits_is_quoted():
    proposal = find_proposal(build_profile_report(sync_points=[build_sync_point(0.03)]), "no all_reduce at mine.py:12")
    assert proposal.action.startswith("remove the call at mine.py:12,") and not proposal.changes_learning
    assert proposal.reason == "`dist.all_reduce(mean)` holds every worker for 30 ms of a step"


@pytest.mark.parametrize(
    ("name", "action", "options"),
    [
        ("bf16", "--precision bf16", {"precision": "bf16"}),
        ("channels_last", "--channels-last", {"channels_last": True}),
        ("compile", "--compile", {"compile": True}),
    ],
)
def test_cheaper_passes_are_options_of_the_command(name, action, options):
    timings = ShortTimings(pass_ratios={name: PassRatio(ratio=0.8, log_sd=0.1)})
    proposal = propose_cheaper_pass(build_profile_report(timings=timings), name)
    assert (proposal.action, proposal.options, proposal.changes_learning) == (action, options, False)
    assert proposal.reason.startswith("both passes alone take 0.80 of their time with ")
    assert proposal.gain.value == pytest.approx(100 / (100 - 50 * 0.2))
    exact = ShortTimings(pass_ratios={name: PassRatio(ratio=0.8, log_sd=0.0)})
    narrow = propose_cheaper_pass(build_profile_report(timings=exact), name)
    assert narrow.gain.high < proposal.gain.high
    assert propose_cheaper_pass(build_profile_report(timings=ShortTimings()), name) is None


def test_slowest_passes_decide_on_a_cheaper_one():
    parts = [build_parts(forward=20, backward=10, exchange=60), build_parts(forward=30, backward=60)]
    timings = ShortTimings(pass_ratios={"bf16": PassRatio(ratio=0.5, log_sd=0.0)})
    assert propose_cheaper_pass(build_profile_report(parts, timings=timings), "bf16").gain.value == pytest.approx(
        100 / 55
    )


@pytest.mark.parametrize(
    ("value", "low", "is_listed"), [(MIN_GAIN, 1.01, True), (MIN_GAIN, 1.0, False), (1.049, 1.01, False)]
)
def test_worthwhile_are_gains_beyond_noise(report, value, low, is_listed):
    gain = IntervalEstimate(value=value, low=low, high=2.0)
    proposal = Proposal(name="x", action="y", gain=gain, reason="z")
    assert bool(list_worthwhile(replace(report, proposals=(proposal,)))) == is_listed


def test_options_and_milliseconds_as_text():
    assert [format_option("batch_size", 8), format_option("compile", True)] == ["--batch-size 8", "--compile"]
    assert format_option("augment", False) == "--augment False"
    assert [format_milliseconds(value) for value in (0.0012345, 1.5, float("inf"), float("nan"))] == [
        "1.23 ms", "1.5e+03 ms", "-", "-",
    ]  # fmt: skip


def test_bytes_and_delay_of_a_sum_are_not_negative():
    assert volume_share({1000: 0.02, 11_000: 0.01}, 11_000) == 0
    assert volume_share({1000: 0.001, 11_000: 0.101}, 11_000) == 1  # the line begins below zero
    assert volume_share({1000: 0.002, 5000: 9.0, 11_000: 0.012}, 1000) == pytest.approx(0.5)


def test_a_saving_leaves_a_hundredth_of_a_step(report):
    assert saved_gain(report, 0.05) == pytest.approx(2) and saved_gain(report, -0.1) == pytest.approx(0.5)
    assert saved_gain(report, 0.099) == pytest.approx(100) == saved_gain(report, 0.2)


def test_intervals_of_gains_join_three_errors(report):
    exact = replace(report, steps=replace(report.steps, pace_sd=0.0))
    assert predict_gain(exact, 1.0).high == pytest.approx(2.718281828 ** (1.2816 * 0.01))
    assert predict_gain(report, 1.0).high == pytest.approx(2.718281828 ** (1.2816 * 0.02))
    assert predict_gain(report, 1.0, 0.0375).high == pytest.approx(2.718281828 ** (1.2816 * 0.0425))
    assert predict_gain(exact, 2.718281828).high / 2.718281828 > predict_gain(exact, 1.0).high


@pytest.mark.parametrize(("seconds", "lost"), [(0.00501, True), (0.00499, False)])
def test_a_twentieth_of_a_step_is_lost(report, seconds, lost):
    gain = IntervalEstimate(value=1.0, low=1.0, high=1.0)
    for kind in ("data", "sync", "exchange", "imbalance"):
        assert is_lost(StepLoss(kind=kind, name="x", seconds=seconds, gain=gain), report) == lost
    for kind in ("layer", "optimizer", "other"):
        assert not is_lost(StepLoss(kind=kind, name="x", seconds=1.0, gain=gain), report)


def test_parts_of_less_than_half_a_hundredth_are_not_shown():
    layers = [
        build_layer("", 0.0005),
        build_layer("tiny", 0.000499),
        replace(build_layer("untimed", 1.0), forward_seconds=None),
    ]
    names = [loss.name for loss in rank_losses(build_profile_report([build_parts(forward=90)], layers=layers))]
    assert names == ["optimizer", "layer (none): Linear"]


@pytest.mark.parametrize(("data", "saved"), [(30, 30 + 10), (15, 15 + 5), (60, 60 + 10)])
def test_waits_leave_caches_cold_from_three_tenths_of_a_step(data, saved):
    part = build_parts(data=data, forward=20, backward=10, exchange_under_data=2)
    report = build_profile_report([part, build_parts(forward=90)], timings=ShortTimings(pass_seconds=0.02))
    assert saved_by_data(report) == pytest.approx((saved - 2) / 1000)
    warm = replace(report, timings=ShortTimings(pass_seconds=0.05))
    assert saved_by_data(warm) == pytest.approx((data - 2) / 1000)


def test_seconds_of_a_layer_are_those_of_both_passes():
    layer = build_layer("body", 0.3)
    assert layer.seconds == pytest.approx(0.3) and replace(layer, backward_seconds=None).seconds == pytest.approx(0.1)
    assert replace(layer, forward_seconds=None).seconds is None


def test_rates_are_limited_by_products_or_by_memory():
    limits = MachineLimits(flop_per_second=1e11, bytes_per_second=1e10)
    assert limits.bound_flop_rate(1e6, 1e6) == 1e10 and limits.bound_flop_rate(1e8, 1e6) == 1e11
    assert build_sync_point(0.1).place == "mine.py:12"
