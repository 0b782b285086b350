"""Grafana's dashboards show what the service counts, all of it, and by names that it really has."""

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
TEXTS = {name: (FOLDER / f"{name}.json").read_text() for name in ("service", "drift")}
BOARDS = {name: json.loads(text) for name, text in TEXTS.items()}
COLUMNS = 24  # of Grafana's grid
CLOSED = {"(": ")", "[": "]", "{": "}"}

each = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())


def families():
    """What a service exports: of each metric its samples, each with its labels."""
    metrics = Metrics()
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase) and metric._labelnames:
            metric.labels(*metric._labelnames)
    found = {}
    for family in metrics.registry.collect():
        told = [sample for sample in family.samples if not sample.name.endswith("_created")]
        found[family.name] = {sample.name: sample.labels.keys() for sample in told}
    return found


FAMILIES = families()
LABELS = {name: labels for samples in FAMILIES.values() for name, labels in samples.items()}


def expressions(board):
    """All that a dashboard asks Prometheus for."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return asked + [one["query"]["query"] for one in variables(board) if one["type"] == "query"]


def variables(board):
    return board["templating"]["list"]


def metrics(text):
    return re.findall(r"\bequipoise_\w+", text)


def bare(expression):
    """An expression without its strings, which may hold anything."""
    return re.sub(r'"(\\.|[^"\\])*"', '""', expression)


def balanced(expression):
    """Whether all that opens is closed, and by its like."""
    waiting = []
    for one in bare(expression):
        if one in CLOSED:
            waiting.append(CLOSED[one])
        elif one in CLOSED.values() and (not waiting or waiting.pop() != one):
            return False
    return not waiting


def inside(text):
    """What stands in the parenthesis with which a text begins."""
    depth = 0
    for place, one in enumerate(text):
        depth += (one == "(") - (one == ")")
        if depth == 0:
            return text[1:place]
    raise ValueError(f"nothing closes {text!r}")


def listed(names):
    return [name.strip() for name in names.split(",") if name.strip()]


def chosen(expression):
    """Metrics with the labels that stand in braces behind them."""
    for metric, braces in re.findall(r"\b(equipoise_\w+)\{([^}]*)\}", bare(expression)):
        for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces):
            yield metric, name


def grouped(expression):
    """Metrics with the labels by which they are added up, matched or listed."""
    text = bare(expression)
    for found in re.finditer(r"\bby \(([^)]*)\) (?=\()", text):
        yield from ((metric, name) for metric in metrics(inside(text[found.end() :])) for name in listed(found[1]))
    for names in re.findall(r"\bon \(([^)]*)\)", text):
        yield from ((metric, name) for metric in metrics(text) for name in listed(names))
    yield from re.findall(r"^label_values\((\w+).*, (\w+)\)$", text)


def overlap(one, other):
    """Whether two places on the grid share a cell."""
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_every_metric_that_is_asked_for_is_exported():
    for expression in chain.from_iterable(expressions(board) for board in BOARDS.values()):
        assert metrics(expression) and set(metrics(expression)) <= LABELS.keys(), expression


def test_every_metric_that_is_exported_is_shown():
    panels = [panel for board in BOARDS.values() for panel in board["panels"]]
    shown = {name for panel in panels for target in panel["targets"] for name in metrics(target["expr"])}
    assert [name for name, samples in FAMILIES.items() if not shown & samples.keys()] == []


@each
def test_labels_belong_to_their_metric(board):
    for expression in expressions(board):
        for metric, name in chain(chosen(expression), grouped(expression)):
            assert name in LABELS[metric], f"{metric} has no label {name}: {expression}"


@each
def test_expressions_are_whole(board):
    for expression in expressions(board):
        assert balanced(expression), expression
        assert len(re.findall(r"\bby\b", expression)) == len(re.findall(r"\bby \([\w, ]+\) \(", expression)), expression


@each
def test_legends_name_labels_that_are_left(board):
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        left = {name for names in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for name in listed(names)}
        assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= left, target


@each
def test_every_variable_asked_for_is_there(board):
    there = {one["name"] for one in variables(board)} | {"__rate_interval", "__range"}
    assert {name for text in expressions(board) for name in re.findall(r"\$(\w+)", text)} <= there
    parts = [*board["panels"], *(target for panel in board["panels"] for target in panel["targets"])]
    sources = [one["datasource"] for one in parts + [one for one in variables(board) if one["type"] == "query"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@each
def test_it_can_be_imported(board):
    assert board["schemaVersion"] >= 39 and board["id"] is None
    assert [(one["name"], one["pluginId"]) for one in board["__inputs"]] == [("DS_PROMETHEUS", "prometheus")]
    (source,) = [one for one in variables(board) if one["type"] == "datasource"]
    assert (source["name"], source["current"]["value"]) == ("datasource", "${DS_PROMETHEUS}")
    required = {one["id"] for one in board["__requires"]}
    assert required == {"grafana", "prometheus", *(panel["type"] for panel in board["panels"])}


@each
def test_panels_lie_on_the_grid_and_not_on_each_other(board):
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(min(one["w"], one["h"]) > 0 and min(one["x"], one["y"]) >= 0 for one in places)
    assert all(one["x"] + one["w"] <= COLUMNS for one in places)
    assert not [pair for pair in combinations(places, 2) if overlap(*pair)]


@each
def test_every_panel_says_what_it_shows(board):
    for panel in board["panels"]:
        assert panel["title"] and panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"], panel
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references), panel["title"]
    for names in zip(*((panel["id"], panel["title"]) for panel in board["panels"]), strict=True):
        assert len(set(names)) == len(names)


def test_dashboards_are_told_apart():
    uids = {board["uid"] for board in BOARDS.values()}
    assert len(uids) == len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    assert all(8 <= len(uid) <= 40 for uid in uids)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_colours_are_those_of_our_pages(text):
    colours = set(re.findall(r'"(?:color|fixedColor|fill|iconColor)": "([^"]*)"', text)) - {"dash"}  # a line's fill
    assert colours and colours <= {*SERIES_COLORS, NEUTRAL_COLOR}


def test_a_state_is_unknown_as_long_as_the_monitor_says_so():
    states = [text for text in expressions(BOARDS["drift"]) if "equipoise_drift{" in text]
    assert [text for text in states if f"< bool {MIN_STREAM_IMAGES})" in text]


@pytest.mark.parametrize("text", ["sum(a", "sum(a[5m)]", "a)", 'a{b="("}}'])
def test_what_is_not_whole_is_found(text):
    assert not balanced(text)


def test_labels_are_found_where_they_stand():
    text = 'sum by (le, path) (rate(equipoise_a{path=~"x{1}", status!="by (no) "}[5m])) / on (path) equipoise_b'
    assert list(chosen(text)) == [("equipoise_a", "path"), ("equipoise_a", "status")]
    within, matched = (
        [("equipoise_a", "le"), ("equipoise_a", "path")],
        [("equipoise_a", "path"), ("equipoise_b", "path")],
    )
    assert list(grouped(text)) == within + matched
