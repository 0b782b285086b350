"""The page of a profile and its terminal text say where time goes, what would help, and what trying it showed."""

from dataclasses import replace

import pytest

from dashboards.page import NumberCell, render_html
from dashboards.panels.profiling.gains import gains_figure, losses_table, proposals_table
from dashboards.panels.profiling.layers import build_layer_panels, layers_table, limit_share, roofline_figure
from dashboards.panels.profiling.step_memory import build_step_memory_panel, describe_step_memory
from dashboards.panels.profiling.step_parts import step_parts_figure, step_parts_table, timeline_figure
from dashboards.profile_page import NOTHING_TO_GAIN, build_profile_page, describe_profile
from equipoise.profiling.advice import add_advice
from equipoise.profiling.profile_report import ShortTimings
from tests.support.profile_reports import build_layer, build_parts, build_profile_report, build_sync_point

REPORT = add_advice(build_profile_report(sync_points=[build_sync_point(0.02)]))


def list_texts(table):
    return [[cell.text if isinstance(cell, NumberCell) else cell for cell in row] for row in table.rows]


def try_first(report, gain):
    first, *others = report.proposals
    return replace(report, proposals=(replace(first, tried_gain=gain), *others))


def test_parts_of_each_worker_add_up_to_its_step():
    figure = step_parts_figure(REPORT)
    assert [sum(values) for values in zip(*(trace.x for trace in figure.data), strict=True)] == pytest.approx(
        [100, 100]
    )
    assert [trace.name for trace in figure.data] == ["forward", "backward", "optimizer", "waiting for the exchange"]
    assert list_texts(step_parts_table(REPORT))[1][:2] == [1, "100 ms"]
    assert figure.layout.xaxis.title.text == "ms per step"


def test_timeline_has_a_row_for_the_exchange_of_each_worker():
    figure = timeline_figure(REPORT)
    rows = {label for trace in figure.data for label in trace.y}
    assert rows == {"worker 0", "worker 0, exchange", "worker 1"} == set(figure.layout.yaxis.categoryarray)
    backward = next(trace for trace in figure.data if trace.name == "backward")
    assert (backward.base[0], backward.x[0]) == pytest.approx((20, 30))


def test_layer_below_the_roof_has_its_share_of_the_limit():
    layer = build_layer("wide", 0.02)
    moved = (3 * 400 + 2 * 40) * 32 + 3 * 4000
    rate = 3e6 * 32 / 0.02
    assert limit_share(REPORT, layer) == pytest.approx(rate / min(1e11, 1e10 * 3e6 * 32 / moved))
    assert limit_share(REPORT, replace(layer, forward_flop=0.0, backward_flop=0.0)) is None
    line, marks = roofline_figure(REPORT.limits, [layer], 32).data
    assert max(line.y) == pytest.approx(100) and marks.marker.symbol is None
    assert marks.y[0] == pytest.approx(rate / 1e9) and marks.x[0] == pytest.approx(3e6 * 32 / moved)
    assert list_texts(layers_table(REPORT))[0][:3] == ["body.0", "Linear", "1,000,000"]
    twice = replace(REPORT, config=replace(REPORT.config, grad_accumulation=2))
    moved_twice = (3 * 400 + 2 * 40) * 64 + 3 * 4000
    assert limit_share(twice, layer) == pytest.approx(2 * rate / min(1e11, 1e10 * 3e6 * 64 / moved_twice))
    axes = roofline_figure(REPORT.limits, [layer], 32).layout
    assert (axes.xaxis.type, axes.yaxis.type) == ("log", "log")
    assert (axes.xaxis.title.text, axes.yaxis.title.text) == ("operations per byte", "billion operations/s")


def test_layers_without_seconds_have_no_panel():
    untimed = replace(REPORT, layers=tuple(replace(row, forward_seconds=None) for row in REPORT.layers))
    assert build_layer_panels(untimed) == []
    assert [panel.name for panel in build_layer_panels(REPORT)] == ["layers", "roofline"]


def test_predicted_gains_are_hollow_and_measured_ones_filled():
    (predicted,) = gains_figure(REPORT).data
    assert predicted.marker.symbol == "circle-open" and len(predicted.x) == len(REPORT.proposals)
    _, measured = gains_figure(try_first(REPORT, 1.5)).data
    assert measured.marker.symbol == "circle" and list(measured.x) == [1.5]


def test_tables_and_text_have_the_verdict():
    best = REPORT.proposals[0]
    for gain, verdict in ((best.gain.value, "confirmed"), (0.5, "refuted")):
        tried = try_first(REPORT, gain)
        assert list_texts(proposals_table(tried))[0][4] == verdict
        assert f": {verdict}; {best.action}" in "\n".join(describe_profile(tried))
    assert list_texts(losses_table(REPORT))[0][0] == REPORT.losses[0].name
    assert "confirmed" not in "\n".join(describe_profile(REPORT))


def test_page_names_the_largest_loss_and_shows_every_part():
    html = render_html(build_profile_page(REPORT))
    assert "most goes to waiting for the exchange of gradients: 25 ms" in html.replace("Most", "most")
    names = ("step-parts", "timeline", "gains", "sync-points", "layers", "roofline", "losses", "proposals")
    assert all(f'id="{name}"' in html for name in names)
    assert "mine.py:12" in html and "changes what is learned" in html


def test_page_has_the_memory_over_the_batch_and_the_links():
    html = render_html(build_profile_page(REPORT))
    assert 'id="memory"' in html and 'id="levels"' in html
    assert "50 us for a small message, 8 Gbit/s for a large one" in html
    observed = replace(REPORT, memory=None, links=())
    html = render_html(build_profile_page(observed))
    assert 'id="memory"' not in html and 'id="levels"' not in html


def test_words_on_memory_say_what_the_batch_takes_and_which_one_fits():
    memory = REPORT.memory
    assert describe_step_memory(memory, 32) == (
        "a worker takes 900 MB at its batch of 32, and a batch of up to 790 is predicted to fit in 1 GB"
    )
    assert "takes 344 MB at its batch of 4" in describe_step_memory(memory, 4)  # as measured
    assert describe_step_memory(replace(memory, largest_batch=0), 32).endswith(
        "none fits in the memory that is available"
    )


def test_memory_of_a_small_model_is_drawn_in_megabytes_and_told_in_a_table():
    panel = build_step_memory_panel(REPORT.memory)
    bars = [trace for trace in panel.figure.data if trace.type == "bar"]
    totals = [sum(bar.y[index] for bar in bars) for index in range(4)]
    assert totals == pytest.approx([row.total / 1e6 for row in REPORT.memory.rows])
    assert panel.figure.layout.yaxis.title.text == "MB a worker"
    assert [line.y0 for line in panel.figure.layout.shapes] == [1000]
    far = replace(REPORT.memory, available_bytes=2.1e9)  # whose line would make the bars too low to read
    assert not build_step_memory_panel(far).figure.layout.shapes
    assert [row[-1] for row in panel.data_table.rows] == ["yes"] * 4
    assert "1 GB are available" in panel.caption


def test_run_without_anything_to_gain_says_so():
    report = add_advice(build_profile_report([build_parts(forward=40, backward=58)], timings=ShortTimings()))
    assert describe_profile(report)[-1] == NOTHING_TO_GAIN
    assert NOTHING_TO_GAIN[1:] in render_html(build_profile_page(report))
