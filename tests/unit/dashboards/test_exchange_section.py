"""The section on ways of exchange says in words, figures and tables what plan.json says of them."""

from dataclasses import replace

import pytest

from dashboards.experiments import Sweep
from dashboards.page import NumberCell, render_html
from dashboards.panels.exchanges.best_exchange_map import (
    build_map_panel,
)
from dashboards.panels.exchanges.exchange_section import (
    build_exchange_section,
    describe_choice,
    encoding_cell,
    verdicts_table,
)
from dashboards.panels.exchanges.exchange_times import build_times_panel, exchange_times_figure, times_table
from dashboards.panels.exchanges.time_estimates import (
    estimate_exact_seconds,
    find_plan_estimate,
    list_time_estimates,
)
from dashboards.reports import tradeoff_page
from equipoise.planning.document import PlanEntry
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, SwitchesAt
from tests.support.demo_records import CONFIRMATION
from tests.support.exchange_plans import (
    OWN_DELAY,
    OWN_RATE,
    build_exchange_document,
    build_verdict,
    compute_target_seconds,
)
from tests.support.plan_documents import build_document, build_option, build_plan

DOCUMENT = build_exchange_document()
SMALL_MAP = ExchangeMap(
    bits_per_second=(1e8, 1e9),
    delay_seconds=(0.0, 1e-3),
    options=("", "local:16"),
    best=((1, 0), (1, 1)),
    exact_seconds=((20.0, 5.0), (40.0, 30.0)),
    speedup=((4.0, 1.0), (8.0, 3.0)),
)


def list_texts(table):
    return [[cell.text if isinstance(cell, NumberCell) else cell for cell in row] for row in table.rows]


def read_traces(figure):
    return {trace.name: trace for trace in figure.data if trace.name}


def test_times_have_exact_sums_first_and_bounds_where_nothing_was_measured():
    exact, *others = list_time_estimates(DOCUMENT)
    assert exact.exchange == ""
    assert exact.seconds.value == pytest.approx(compute_target_seconds("", OWN_RATE, OWN_DELAY))
    assert [(row.exchange, row.is_measured, row.is_bound) for row in others] == [
        ("local:16", True, False),
        ("local:64/bf16", False, False),
        ("bf16", False, True),
        ("int8", False, True),
    ]
    assert others[-1].seconds.value == pytest.approx(exact.seconds.value / 1.02)


def test_exact_sums_have_the_interval_of_the_setting_with_their_time():
    exact = compute_target_seconds("", OWN_RATE, OWN_DELAY)
    options = (build_option(2, 64, 2 * exact), build_option(4, 32, exact * 1.001))
    estimate = estimate_exact_seconds(build_exchange_document(options=options))
    assert estimate == ("", options[1].seconds, True, False)
    unknown = estimate_exact_seconds(DOCUMENT)
    assert unknown.seconds.low == unknown.seconds.high == pytest.approx(exact) and not unknown.is_measured


@pytest.mark.parametrize("name", ["", "tree"])
def test_exact_plan_tells_the_time_of_exact_sums_where_nothing_else_was_measured(name):
    plan = build_plan(exchange=name, seconds=20.0, measured=False)
    document = build_exchange_document(plan=plan, exchanges=DOCUMENT.exchanges[2:])
    assert estimate_exact_seconds(document) == find_plan_estimate(document) == ("", plan.seconds, False, False)


def test_figure_of_times_marks_measured_predicted_bound_and_the_plan():
    figure = exchange_times_figure(DOCUMENT)
    traces = read_traces(figure)
    assert {name: [*trace.y] for name, trace in traces.items()} == {
        "the plan": ["local:16"],
        "measured": ["local:16"],
        "predicted": ["exact sums", "local:64/bf16"],
        "bound, no sooner than": ["bf16", "int8"],
    }
    assert figure.layout.yaxis.categoryarray[-1] == "exact sums"  # categories go upwards
    verdict = DOCUMENT.exchanges[0]
    bar = traces["measured"].error_x
    assert traces["measured"].x[0] + bar.array[0] == pytest.approx(verdict.seconds.high)
    assert traces["measured"].x[0] - bar.arrayminus[0] == pytest.approx(verdict.seconds.low)
    assert {name for name, trace in traces.items() if trace.error_x.visible} == {"measured", "predicted"}


def test_figure_of_times_has_the_runs_of_both_plans():
    exact = replace(CONFIRMATION, seconds=280.0, inside=False, seed=3)
    runs = exact, replace(CONFIRMATION, exchange="local:16"), replace(CONFIRMATION, exchange="tree")
    document = build_exchange_document().with_confirmations(runs)
    traces = read_traces(exchange_times_figure(document))
    assert ([*traces["a run, confirmed"].y], [*traces["a run, refuted"].y]) == (["local:16"], ["exact sums"])
    assert [*traces["a run, refuted"].x] == [280.0] and traces["a run, confirmed"].x[0] == CONFIRMATION.seconds
    assert "4.67 min to the target, slower" in traces["a run, refuted"].text[0]


def test_table_of_times_has_numbers_that_sort_and_texts_that_read():
    verdict = DOCUMENT.exchanges[0]
    row = times_table(DOCUMENT).rows[0]
    assert row[:3] == ["local:16", "4 workers on 2 nodes", 32]
    assert [cell.value for cell in row[3:]] == [
        verdict.lr,
        verdict.step_seconds,
        verdict.seconds.value,
        verdict.speedup.value,
        verdict.peak_bytes,
    ]
    assert [type(cell.text) for cell in row[3:]] == [str] * 5


def test_one_time_alone_makes_no_figure():
    assert build_times_panel(build_exchange_document(exchanges=())) is None
    assert build_times_panel(DOCUMENT).data_table.rows[0][5].text.startswith("48 s")


def test_verdicts_say_bytes_encoding_ratio_and_reason():
    assert list_texts(verdicts_table(DOCUMENT))[-2:] == [
        ["bf16", "unknown", "7.94 MiB", "2 ms", "-", "at most 1.86", "no trial reached the target within the budget"],
        [
            "int8",
            "no gain",
            "4.01 MiB",
            "42.1 ms",
            "-",
            "at most 1.02",
            "int8 would be at most 2 % sooner even if it cost no examples",
        ],
    ]
    used = list_texts(verdicts_table(DOCUMENT))[0]
    assert used[:5] == ["local:16", "use", "1,016 KiB", "0 ms", "1.3 (1.2 to 1.4)"]


@pytest.mark.parametrize(
    ("name", "seconds", "text"),
    [
        ("int8", None, "-"),
        ("int8", 0.0, "-"),
        ("local:4/int8", 0.0, "-"),
        ("local:4", 0.0, "0 ms"),
        ("int8", 4e-4, "0.4 ms"),
    ],
)
def test_encoding_that_was_not_timed_is_no_number(name, seconds, text):
    assert encoding_cell(build_verdict(exchange=name, encode_seconds=seconds)).text == text


@pytest.mark.parametrize(
    ("switches", "sentence"),
    [
        (
            (2e9, None),
            "Another way of exchange is faster than exact sums below 2 Gbit/s at the measured delay of 100 us.",
        ),
        (
            (2e9, 0.004),
            "Another way of exchange is faster than exact sums below 2 Gbit/s at the measured delay of 100 us, and"
            " above 4 ms a message at the measured 200 Mbit/s.",
        ),
        (
            (None, None),
            "The answer is the same at every rate with the measured delay, and at every delay with the measured rate.",
        ),
    ],
)
def test_words_say_where_the_answer_changes(switches, sentence):
    rate, delay = switches
    document = build_exchange_document(switches_at=SwitchesAt(bits_per_second=rate, delay_seconds=delay))
    choice, changes = describe_choice(document)
    assert choice.startswith("The plan exchanges as `local:16`. Reason: local:16 needs 1.3 times the examples")
    assert changes == sentence


def test_words_without_a_map_tell_only_what_was_compared():
    unknown, known = (
        describe_choice(build_exchange_document(exchange_map=None, switches_at=SwitchesAt(bits_per_second=rate)))[-1]
        for rate in (None, 2e9)
    )
    assert unknown == "No other rate was found at which the answer changes."
    assert known == "Another way of exchange is faster than exact sums below 2 Gbit/s."


def test_words_of_an_exact_plan():
    plan = build_option(kind=PlanEntry, why="it is the fastest")
    assert describe_choice(build_exchange_document(plan=plan, switches_at=None)) == [
        "The plan sums gradients exactly in every step."
    ]


def test_page_has_the_section_only_where_there_are_other_ways():
    def render(document):
        return render_html(tradeoff_page(Sweep(plan=document, step_times=None, examples_to_target=None), "made-up"))

    html = render(DOCUMENT)
    assert "Ways of exchange" in html and 'id="exchange-map"' in html and 'id="exchange-times"' in html
    assert "exchanging as <code>local:16</code>" in html
    plain = build_document(plan=build_plan())
    assert build_exchange_section(plain) is build_map_panel(plain) is None
    assert "xchange" not in render(plain)
