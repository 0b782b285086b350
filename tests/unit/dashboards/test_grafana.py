"""Grafana's dashboards show every metric of the service, under the names and labels that it exports."""

import json
import re
from itertools import chain, combinations
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase

from dashboards.theme import NEUTRAL_COLOR, SERIES_COLORS, __file__
from equipoise.drift.charts.cusum import MIN_STREAM_IMAGES
from services.monitoring.metrics import Metrics

FOLDER = Path(__file__).parent / "grafana"
JSON_TEXTS = {name: (FOLDER / f"{name}.json").read_text() for name in ("service", "drift")}
DASHBOARDS = {name: json.loads(text) for name, text in JSON_TEXTS.items()}
GRID_COLUMNS = 24  # width of Grafana's grid
CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}

for_each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())


def collect_metric_families():
    """Return the labels of each sample of each metric family that the service exports."""
    metrics = Metrics()
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase) and metric._labelnames:
            metric.labels(*metric._labelnames)
    labels_by_sample = {}
    for family in metrics.registry.collect():
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        labels_by_sample[family.name] = {sample.name: sample.labels.keys() for sample in samples}
    return labels_by_sample


FAMILIES = collect_metric_families()
LABELS_BY_SAMPLE = {name: labels for samples in FAMILIES.values() for name, labels in samples.items()}


def list_expressions(dashboard):
    """Return all expressions that a dashboard sends to Prometheus."""
    panel_expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panel_expressions + [
        variable["query"]["query"] for variable in list_variables(dashboard) if variable["type"] == "query"
    ]


def list_variables(dashboard):
    return dashboard["templating"]["list"]


def find_metric_names(text):
    return re.findall(r"\bequipoise_\w+", text)


def blank_strings(expression):
    """Return an expression with its strings emptied, because they may contain anything."""
    return re.sub(r'"(\\.|[^"\\])*"', '""', expression)


def is_balanced(expression):
    """Return whether every bracket is closed by one of its kind."""
    expected = []
    for character in blank_strings(expression):
        if character in CLOSING_BRACKETS:
            expected.append(CLOSING_BRACKETS[character])
        elif character in CLOSING_BRACKETS.values() and (not expected or expected.pop() != character):
            return False
    return not expected


def read_parentheses(text):
    """Return the content of the parentheses that a text begins with."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:index]
    raise ValueError(f"nothing closes {text!r}")


def split_names(names):
    return [name.strip() for name in names.split(",") if name.strip()]


def find_selector_labels(expression):
    """Yield each metric with each label in the braces after it."""
    for metric, braces in re.findall(r"\b(equipoise_\w+)\{([^}]*)\}", blank_strings(expression)):
        for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces):
            yield metric, name


def find_grouping_labels(expression):
    """Yield each metric with each label by which it is grouped, matched or listed."""
    text = blank_strings(expression)
    for match in re.finditer(r"\bby \(([^)]*)\) (?=\()", text):
        yield from (
            (metric, name)
            for metric in find_metric_names(read_parentheses(text[match.end() :]))
            for name in split_names(match[1])
        )
    for names in re.findall(r"\bon \(([^)]*)\)", text):
        yield from ((metric, name) for metric in find_metric_names(text) for name in split_names(names))
    yield from re.findall(r"^label_values\((\w+).*, (\w+)\)$", text)


def positions_overlap(first, second):
    """Return whether two positions on the grid share a cell."""
    columns_overlap = first["x"] < second["x"] + second["w"] and second["x"] < first["x"] + first["w"]
    return columns_overlap and first["y"] < second["y"] + second["h"] and second["y"] < first["y"] + first["h"]


def test_every_queried_metric_is_exported():
    for expression in chain.from_iterable(list_expressions(dashboard) for dashboard in DASHBOARDS.values()):
        assert find_metric_names(expression) and set(find_metric_names(expression)) <= LABELS_BY_SAMPLE.keys(), (
            expression
        )


def test_every_exported_metric_is_shown():
    panels = [panel for dashboard in DASHBOARDS.values() for panel in dashboard["panels"]]
    shown_metrics = {
        name for panel in panels for target in panel["targets"] for name in find_metric_names(target["expr"])
    }
    assert [name for name, samples in FAMILIES.items() if not shown_metrics & samples.keys()] == []


@for_each_dashboard
def test_queried_labels_belong_to_their_metric(dashboard):
    for expression in list_expressions(dashboard):
        for metric, name in chain(find_selector_labels(expression), find_grouping_labels(expression)):
            assert name in LABELS_BY_SAMPLE[metric], f"{metric} has no label {name}: {expression}"


@for_each_dashboard
def test_expressions_are_well_formed(dashboard):
    for expression in list_expressions(dashboard):
        assert is_balanced(expression), expression
        assert len(re.findall(r"\bby\b", expression)) == len(re.findall(r"\bby \([\w, ]+\) \(", expression)), expression


@for_each_dashboard
def test_legends_use_labels_of_their_query(dashboard):
    for target in (target for panel in dashboard["panels"] for target in panel["targets"]):
        grouping_labels = {
            name for names in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for name in split_names(names)
        }
        assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= grouping_labels, target


@for_each_dashboard
def test_every_queried_variable_is_defined(dashboard):
    defined = {variable["name"] for variable in list_variables(dashboard)} | {"__rate_interval", "__range"}
    assert {name for text in list_expressions(dashboard) for name in re.findall(r"\$(\w+)", text)} <= defined
    parts = [*dashboard["panels"], *(target for panel in dashboard["panels"] for target in panel["targets"])]
    sources = [
        part["datasource"]
        for part in parts + [variable for variable in list_variables(dashboard) if variable["type"] == "query"]
    ]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@for_each_dashboard
def test_dashboard_can_be_imported(dashboard):
    assert dashboard["schemaVersion"] >= 39 and dashboard["id"] is None
    assert [(entry["name"], entry["pluginId"]) for entry in dashboard["__inputs"]] == [("DS_PROMETHEUS", "prometheus")]
    (source,) = [entry for entry in list_variables(dashboard) if entry["type"] == "datasource"]
    assert (source["name"], source["current"]["value"]) == ("datasource", "${DS_PROMETHEUS}")
    required = {entry["id"] for entry in dashboard["__requires"]}
    assert required == {"grafana", "prometheus", *(panel["type"] for panel in dashboard["panels"])}


@for_each_dashboard
def test_panels_lie_on_the_grid_without_overlap(dashboard):
    positions = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(
        min(position["w"], position["h"]) > 0 and min(position["x"], position["y"]) >= 0 for position in positions
    )
    assert all(position["x"] + position["w"] <= GRID_COLUMNS for position in positions)
    assert not [pair for pair in combinations(positions, 2) if positions_overlap(*pair)]


@for_each_dashboard
def test_every_panel_has_title_description_unit_and_unique_ids(dashboard):
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"], panel
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references), panel["title"]
    for values in zip(*((panel["id"], panel["title"]) for panel in dashboard["panels"]), strict=True):
        assert len(set(values)) == len(values)


def test_dashboards_have_distinct_uids_and_titles():
    uids = {dashboard["uid"] for dashboard in DASHBOARDS.values()}
    assert len(uids) == len({dashboard["title"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)
    assert all(8 <= len(uid) <= 40 for uid in uids)


@pytest.mark.parametrize("text", JSON_TEXTS.values(), ids=JSON_TEXTS.keys())
def test_colours_are_those_of_the_theme(text):
    # "dash" is the fill of a line, not a colour.
    colours = set(re.findall(r'"(?:color|fixedColor|fill|iconColor)": "([^"]*)"', text)) - {"dash"}
    assert colours and colours <= {*SERIES_COLORS, NEUTRAL_COLOR}


def test_drift_state_is_unknown_below_the_minimum_number_of_images():
    states = [text for text in list_expressions(DASHBOARDS["drift"]) if "equipoise_drift{" in text]
    assert [text for text in states if f"< bool {MIN_STREAM_IMAGES})" in text]


@pytest.mark.parametrize("text", ["sum(a", "sum(a[5m)]", "a)", 'a{b="("}}'])
def test_unbalanced_expression_is_detected(text):
    assert not is_balanced(text)


def test_labels_are_found_in_selectors_and_groupings():
    text = 'sum by (le, path) (rate(equipoise_a{path=~"x{1}", status!="by (no) "}[5m])) / on (path) equipoise_b'
    assert list(find_selector_labels(text)) == [("equipoise_a", "path"), ("equipoise_a", "status")]
    grouping_labels, matching_labels = (
        [("equipoise_a", "le"), ("equipoise_a", "path")],
        [("equipoise_a", "path"), ("equipoise_b", "path")],
    )
    assert list(find_grouping_labels(text)) == grouping_labels + matching_labels
