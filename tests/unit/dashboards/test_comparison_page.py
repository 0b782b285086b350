"""The page of one worker beside two says which is faster, why, and from which batch on."""

import pytest

from dashboards.comparison_page import build_comparison_page, describe_comparison, describe_crossing, describe_epoch
from dashboards.page import render_html
from dashboards.panels.profiling.device_curves import (
    build_device_panels,
    comparison_table,
    curves_figure,
    exchange_figure,
)
from tests.support.device_comparisons import BATCHES, EXCHANGE_SECONDS, build_comparison, own_step_seconds


def test_words_name_the_share_of_the_exchange_and_the_batch_from_which_on_two_pay():
    comparison = build_comparison()
    share = EXCHANGE_SECONDS / (own_step_seconds(16) + EXCHANGE_SECONDS)
    assert f"the exchange takes {share:.0%} of their step (1 ms of 2.16 ms)" in describe_epoch(comparison)
    value = comparison.measured_crossing.batch.value
    assert f"the second worker makes digits slower below a batch of {value:,.0f} (" in describe_crossing(comparison)
    assert "as measured; predicted from steps without an exchange" in describe_crossing(comparison)


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        (0.0, "makes digits faster at every batch compared, from 8 on"),
        (6e-3, "makes digits slower up to a batch of 1,024, the largest compared, and would pay from about 1,200 on"),
    ],
)
def test_words_without_a_crossing_say_on_which_side_all_batches_lie(exchange, words):
    assert words in describe_crossing(build_comparison(exchange=exchange))


def test_prediction_alone_is_said_to_be_one():
    comparison = build_comparison(measured=False)
    assert "2 workers are predicted to take" in describe_epoch(comparison)
    assert "as predicted from" in describe_crossing(comparison)
    assert [trace.marker.symbol for trace in curves_figure(comparison).data] == ["circle", "square-open"]


def test_curves_are_seconds_per_example_with_measured_marks_filled():
    figure = curves_figure(build_comparison())
    one, predicted, measured = figure.data
    assert list(one.y) == pytest.approx([own_step_seconds(batch) / batch * 1e6 for batch in BATCHES])
    assert list(measured.y) == pytest.approx(list(predicted.y))
    assert (predicted.marker.symbol, measured.marker.symbol) == ("square-open", "square")


def test_terminal_text_and_page_have_a_row_for_each_batch():
    slower = {batch // 2: [1.3 * own_step_seconds(batch // 2)] * 3 for batch in BATCHES}
    comparison = build_comparison(beside=slower)
    lines = describe_comparison(comparison)
    assert len(lines) == 1 + len(BATCHES) + 4 and lines[1].split()[0] == "8"
    assert "1.30 times as long while the others do" in lines[-1]
    html = render_html(build_comparison_page(comparison))
    names = [panel.name for panel in build_device_panels(comparison)] + [comparison_table(comparison).name]
    assert all(f'id="{name}"' in html for name in names) and "share memory or processors" in html
    assert len(describe_comparison(build_comparison())) == len(lines) - 1  # nothing slows these workers


def test_share_of_the_exchange_is_drawn_over_the_batch():
    comparison = build_comparison()
    figure = exchange_figure(comparison)
    predicted = next(trace for trace in figure.data if trace.name == "predicted")
    assert list(predicted.y) == pytest.approx([100 * row.predicted.exchange_share for row in comparison.rows])
    assert figure.layout.xaxis.type == "log" and "all workers" in figure.layout.xaxis.title.text
