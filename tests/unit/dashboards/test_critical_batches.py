"""The panel of several targets shows the critical batch of each, and is not there for one target."""

from dataclasses import replace

import pytest

from dashboards.experiments import Sweep
from dashboards.page import render_html
from dashboards.panels.critical_batches import build_targets_panel, critical_batch_figure
from dashboards.reports import tradeoff_page
from equipoise.planning.build_document import build_plan_document
from tests.support.several_targets import build_targets_request
from tests.support.sweep_folders import SETUP


@pytest.fixture(scope="module")
def document():
    setup = replace(SETUP, target=2.0, lower_is_better=True, unit="tokens", units_per_example=64)
    return replace(build_plan_document(build_targets_request()), setup=setup)


def test_figure_draws_the_critical_batch_with_its_interval_and_the_planned_batch(document):
    batches, plans = critical_batch_figure(document).data
    estimates = [entry.critical_batch for entry in document.targets]
    assert list(batches.x) == list(plans.x) == [2.4, 2.2, 2.0]
    assert list(batches.y) == [estimate.value for estimate in estimates]
    highs = [y + up for y, up in zip(batches.y, batches.error_y.array, strict=True)]
    lows = [y - down for y, down in zip(batches.y, batches.error_y.arrayminus, strict=True)]
    assert highs == pytest.approx([estimate.high for estimate in estimates])
    assert lows == pytest.approx([estimate.low for estimate in estimates])
    assert list(plans.y) == [entry.plan.global_batch for entry in document.targets]
    assert all("tokens)" in text for text in batches.text)


def test_targets_in_one_order_or_the_other_are_all_labelled(document):
    layout = critical_batch_figure(document).layout
    assert list(layout.xaxis.ticktext) == ["2.4", "2.2", "2"] and layout.yaxis.title.text == "examples"


@pytest.mark.parametrize(("reverse", "autorange"), [(False, "reversed"), (True, True)])
def test_harder_targets_are_on_the_right(document, reverse, autorange):
    targets = document.targets[::-1] if reverse else document.targets
    assert critical_batch_figure(replace(document, targets=targets)).layout.xaxis.autorange == autorange


def test_target_without_a_critical_batch_is_left_out_of_the_figure_and_stays_in_the_table(document):
    unknown = replace(document.targets[0], critical_batch=None, plan=None)
    partial = replace(document, targets=(unknown, *document.targets[1:]))
    batches, plans = critical_batch_figure(partial).data
    assert list(batches.x) == list(plans.x) == [2.2, 2.0]
    rows = build_targets_panel(partial).data_table.rows
    assert [row[0].value for row in rows] == [2.4, 2.2, 2.0] and rows[0][1] == "-" and rows[0][-3:] == [None] * 3


def test_fewer_than_two_critical_batches_make_no_panel(document):
    assert build_targets_panel(replace(document, targets=())) is None
    assert build_targets_panel(replace(document, targets=document.targets[:1])) is None


def test_page_shows_the_panel_with_the_schedule(document):
    sweep = Sweep(plan=document, step_times=None, examples_to_target=None)
    html = render_html(tradeoff_page(sweep, "made-up"))
    assert "Critical batch over the target" in html and "A batch that grows on the way" in html
    assert document.schedule.describe_gain() in html and "tokens)" in html
    alone = Sweep(plan=replace(document, targets=(), schedule=None), step_times=None, examples_to_target=None)
    assert "Critical batch over the target" not in render_html(tradeoff_page(alone, "made-up"))
