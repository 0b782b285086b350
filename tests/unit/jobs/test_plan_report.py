"""A plan as terminal text: the table of the front, the network, and the predictions that were requested."""

from dataclasses import replace

import pytest

from equipoise.planning.document import PlanDocument, PlanEntry, PredictedSetting, StepPrediction
from equipoise.planning.exchange_choice.exchange_verdict import SwitchesAt
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.plan import ClusterShape
from equipoise.planning.sections.examples_types import ExamplesPrediction, ExamplesSection
from equipoise.planning.sections.step_time_types import NetworkLink, StepTimePrediction, StepTimeSection
from jobs.cli.plan_report import (
    format_examples_to_target,
    format_exchanges,
    format_link,
    format_milliseconds,
    format_plan,
    format_predictions,
    format_step_time,
    is_same_setting,
)
from tests.support.exchange_plans import build_verdict

SETTING = PredictedSetting(
    nodes=2,
    workers=8,
    batch=32,
    global_batch=256,
    lr=0.125,
    seconds=IntervalEstimate(value=1234.0, low=1100.0, high=1400.0),
    worker_seconds=9872.0,
    step=StepPrediction(seconds=0.1, compute=0.09, exchange=0.02),
    examples=1000.0,
    measured=False,
)
ENTRY = PlanEntry(**vars(SETTING), binding="compute", why="computing takes most of a step")
EMPTY = PlanDocument(plan=None, front=(), warnings=())
LINK = NetworkLink(
    alpha_seconds=IntervalEstimate(value=0.002, low=0.001, high=0.003),
    bytes_a_second=IntervalEstimate(value=12.5e6, low=10e6, high=15e6),
)


def predict_step(workers, batch, seconds=0.01, measured=True, nodes=1):
    return StepTimePrediction(
        nodes=nodes, workers=workers, batch=batch, seconds=seconds, low=0.008, high=0.0125, measured=measured
    )


def build_section(*predictions, missing=(), links=None):
    return StepTimeSection(
        identifiable=not missing,
        missing=missing,
        parameters={},
        links=links or {},
        form="ring",
        error=0.01,
        predictions=predictions,
    )


def list_rows(document):
    """Return the rows of the table below its header, split into words."""
    _, *rows = (line.split() for line in format_plan(document).splitlines() if not line.startswith(("plan", "note:")))
    return rows


def test_row_shows_the_setting_with_its_time_and_cost():
    document = replace(EMPTY, front=(SETTING,))
    expected = ["2", "8", "32", "256", "0.125", "1,234", "(1,100", "to", "1,400)", "9,872", "predicted"]
    assert list_rows(document) == [expected]
    without_lr = replace(EMPTY, front=(replace(SETTING, lr=None),))
    assert list_rows(without_lr) == [[word for word in expected if word != "0.125"]]


def test_plan_and_knee_are_marked_in_the_table():
    other = replace(SETTING, workers=4, global_batch=128)
    document = replace(EMPTY, front=(SETTING, other), plan=ENTRY, knee=other)
    first, second = list_rows(document)
    assert (first[0], second[0]) == ("*", "2")
    assert (first[-1], second[-1]) == ("predicted", "knee")
    assert list_rows(replace(EMPTY, front=(replace(SETTING, measured=True),)))[0][-1] == "measured"
    [only] = list_rows(replace(EMPTY, front=(SETTING,), plan=ENTRY, knee=SETTING))
    assert (only[0], only[-1]) == ("*", "knee")


@pytest.mark.parametrize("change", [{"nodes": 1}, {"workers": 4}, {"batch": 16}])
def test_settings_differ_by_nodes_workers_or_batch(change):
    assert is_same_setting(SETTING, ENTRY)
    assert is_same_setting(SETTING, replace(SETTING, lr=None, measured=True))
    assert not is_same_setting(SETTING, replace(SETTING, **change))


def test_table_has_at_most_twelve_settings():
    front = tuple(replace(SETTING, batch=batch, global_batch=8 * batch) for batch in range(1, 14))
    assert [row[2] for row in list_rows(replace(EMPTY, front=front))] == [str(batch) for batch in range(1, 13)]


def test_plan_off_the_front_or_far_down_on_it_has_a_row_all_the_same():
    front = tuple(
        replace(SETTING, batch=batch, global_batch=8 * batch, seconds=replace(SETTING.seconds, value=float(batch)))
        for batch in range(1, 14)
    )
    plan = replace(ENTRY, batch=99, global_batch=8 * 99, seconds=replace(SETTING.seconds, value=4.5))
    rows = list_rows(replace(EMPTY, front=front, plan=plan))
    assert [row[3 if row[0] == "*" else 2] for row in rows] == ["1", "2", "3", "4", "99", *map(str, range(5, 13))]
    assert [row[0] for row in rows].count("*") == 1
    far_down = list_rows(
        replace(EMPTY, front=front, plan=replace(ENTRY, batch=13, global_batch=104, seconds=front[-1].seconds))
    )
    assert len(far_down) == 13 and far_down[-1][0] == "*"


def test_plan_without_a_front_has_no_table():
    assert format_plan(EMPTY) == ""
    assert format_plan(replace(EMPTY, warnings=("measure more", "and longer"))) == (
        "note: measure more\nnote: and longer"
    )


def test_plan_is_given_with_its_reason_before_the_network_and_the_notes():
    document = replace(
        EMPTY,
        plan=ENTRY,
        front=(SETTING,),
        system=build_section(predict_step(1, 8), links={"between": LINK, "local": NetworkLink()}),
        warnings=("few seeds",),
    )
    assert format_plan(document).splitlines()[2:] == [
        "plan, not confirmed: 8 workers x 32 on 2 nodes: computing takes most of a step",
        "between nodes: 100 Mbit/s (80 to 120), 2 ms per message",
        "note: few seeds",
    ]


def test_link_is_named_by_its_level():
    assert format_link("local", LINK).startswith("within a node: 100 Mbit/s")
    assert format_link("between", LINK).startswith("between nodes: 100 Mbit/s")


@pytest.mark.parametrize(("high", "is_known"), [(19.9e6, True), (20e6, False), (30e6, False)])
def test_rate_of_a_link_is_given_if_known_within_a_factor_of_two(high, is_known):
    rate = IntervalEstimate(value=12.5e6, low=10e6, high=high)
    assert bool(format_link("local", replace(LINK, bytes_a_second=rate))) == is_known


def test_rate_beyond_any_link_is_not_given():
    for value, is_given in ((9e12, True), (3e14, False)):
        rate = IntervalEstimate(value=value, low=0.9 * value, high=1.1 * value)
        assert bool(format_link("local", replace(LINK, bytes_a_second=rate))) == is_given


@pytest.mark.parametrize("name", ["alpha_seconds", "bytes_a_second"])
def test_link_with_an_unknown_estimate_is_left_out(name):
    assert format_link("local", replace(LINK, **{name: None})) == ""


def test_step_seconds_are_given_in_milliseconds():
    assert format_milliseconds(predict_step(1, 8)) == "10 ms (8 to 12.5)"
    assert format_milliseconds(predict_step(1, 8, seconds=12.3456)) == "12,346 ms (8 to 12.5)"
    for name in ("seconds", "low", "high"):
        assert format_milliseconds(replace(predict_step(1, 8), **{name: None})) == ""


def test_step_time_lists_each_batch_of_the_cluster_shape():
    section = build_section(
        predict_step(4, 8),
        predict_step(4, 16, seconds=0.012),
        predict_step(2, 32),
        predict_step(4, 64, nodes=2),
        predict_step(4, 128, seconds=None),
    )
    assert format_step_time(section, ClusterShape(1, 4)) == (
        "a step takes 10 ms (8 to 12.5) at 8, 12 ms (8 to 12.5) at 16 examples per worker"
    )


def test_step_time_names_the_measurements_that_it_needs():
    assert format_step_time(None, ClusterShape(1, 2)) == "needs --system"
    section = build_section(
        predict_step(1, 8), predict_step(2, 8, seconds=None), missing=("two batches", "several workers")
    )
    assert format_step_time(section, ClusterShape(1, 2)) == "needs two batches, several workers"


@pytest.mark.parametrize(("workers", "is_warned"), [(4, False), (8, False), (9, True), (16, True)])
def test_prediction_beyond_twice_the_timed_workers_carries_a_warning(workers, is_warned):
    section = build_section(predict_step(2, 8), predict_step(4, 16), predict_step(workers, 8, measured=False))
    text = format_step_time(section, ClusterShape(1, workers))
    assert text.endswith("; no more than 4 workers were timed") == is_warned


def predict_examples(global_batch, examples):
    return ExamplesPrediction(global_batch=global_batch, examples=examples, low=9_000.4, high=12_000.6, lr=0.1)


def test_examples_to_the_target_are_those_of_the_global_batch():
    section = ExamplesSection(
        identifiable=True,
        critical_batch=None,
        min_examples=None,
        left_out=(),
        predictions=(predict_examples(64, 10_000.0), predict_examples(128, 11_111.0), predict_examples(256, None)),
    )
    assert format_examples_to_target(section, 128) == "11,111 examples (9,000 to 12,001)"
    for global_batch in (96, 256):
        assert format_examples_to_target(section, global_batch).startswith("needs measurements of more global batches")
    assert format_examples_to_target(None, 128) == "needs --statistical"


def test_requested_predictions_are_a_line_each_in_their_order():
    document = replace(EMPTY, system=build_section(predict_step(2, 8), predict_step(4, 8)))
    shapes = {"1x4": ClusterShape(1, 4), "1x2": ClusterShape(1, 2)}
    assert format_predictions(document, shapes, (1024, 96)) == [
        "at 1x4: a step takes 10 ms (8 to 12.5) at 8 examples per worker",
        "at 1x2: a step takes 10 ms (8 to 12.5) at 8 examples per worker",
        "at a global batch of 1,024: needs --statistical",
        "at a global batch of 96: needs --statistical",
    ]


def test_texts_of_a_plan_show_no_control_characters():
    assert format_plan(replace(EMPTY, warnings=("\x1b[31mred\nplan, confirmed: fake",))) == (
        r"note: \x1b[31mred\nplan, confirmed: fake"
    )


def test_change_of_the_answer_is_given_with_its_unit():
    document = replace(
        EMPTY, exchanges=(build_verdict(),), switches_at=SwitchesAt(bits_per_second=5e8, delay_seconds=0.0025)
    )
    text = format_plan(document)
    assert "the answer changes at 500 Mbit/s on the slowest links" in text
    assert "the answer changes at 2.5 ms a message on the slowest links" in text


def test_predictions_that_were_asked_for_are_shown_also_where_they_are_those_of_the_plan():
    rows = [replace(predict_step(2, 8), exchange=name, bits_per_second=1e9) for name in ("bf16", "local:8")]
    section = replace(build_section(*rows), exchange="bf16", bits_per_second=1e9)
    assert format_exchanges(section, is_requested=True) == []  # measured
    asked = format_exchanges(section, is_requested=True, names=["step/bf16"])
    assert asked == ["bf16 at 1,000 Mbit/s, 2 x 8 on 1 node: a step takes 10 ms (8 to 12.5), measured"]
