"""Plans are compared by time and energy where the energy of a step is known."""

from dataclasses import replace

from dashboards.experiments import Sweep
from dashboards.page import render_html
from dashboards.panels.energy_front import build_energy_panel, energy_figure
from dashboards.panels.tradeoff import build_tradeoff_panels, plans_table
from dashboards.reports import tradeoff_page
from tests.support.plan_documents import build_document, build_option, build_plan

FAST = build_option(workers=4, seconds=10.0, measured=False, joules=8000.0)
FRUGAL = build_option(workers=1, seconds=30.0, joules=3000.0)
WASTEFUL = build_option(workers=2, seconds=40.0, joules=9000.0)
DOCUMENT = replace(
    build_document(plan=build_plan(workers=4, joules=8000.0), front=(FAST, FRUGAL), options=(FAST, FRUGAL, WASTEFUL)),
    energy_front=(FAST, FRUGAL),
)


def test_every_plan_is_a_point_of_time_and_energy_in_the_unit_that_reads_best():
    figure = energy_figure(DOCUMENT)
    plans, front, chosen = figure.data
    assert (list(plans.x), list(plans.y)) == ([10, 30, 40], [8, 3, 9])
    assert list(plans.marker.symbol) == ["circle-open", "circle", "circle"]  # hollow: predicted
    assert (list(front.x), list(front.y)) == ([10, 30], [8, 3])
    assert (list(chosen.x), list(chosen.y)) == ([10], [8])
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("seconds to the target", "energy, kJ")


def test_panel_and_column_are_there_where_energy_is_known():
    panels = [panel.name for panel in build_tradeoff_panels(DOCUMENT, None, None)]
    assert panels.index("energy") == panels.index("front") + 1
    table = plans_table(DOCUMENT)
    assert [row[table.columns.index("joules")] for row in table.rows] == [8000, 3000, 9000]


def test_page_has_the_panel_and_says_the_energy_of_the_plan():
    html = render_html(tradeoff_page(Sweep(plan=DOCUMENT, step_times=None, examples_to_target=None), "made-up"))
    assert "Time against energy" in html and "worker-seconds and 8 kJ." in html


def test_nothing_is_drawn_where_energy_is_not_known():
    unknown = build_document(front=(FAST,), options=(FAST,))
    assert build_energy_panel(unknown) is None and "joules" not in plans_table(unknown).columns
