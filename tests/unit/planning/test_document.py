"""plan.json says the same after it was read and written, and refuses what is none."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.build_document import PlanRequest, build_plan_document
from equipoise.planning.confirmation import ConfirmationResult, PredictionCheck
from equipoise.planning.document import PlanDocument
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.plan import ClusterShape
from equipoise.planning.sections.step_time_section import summarize_draws
from equipoise.planning.sections.step_time_types import NetworkLink
from equipoise.storage.atomic import write_json
from tests.support.errors import raises_code
from tests.support.sweep_folders import write_plan_folder, write_statistical_csv, write_system_csv

DOCUMENT_KEYS = [
    "schema",
    "status",
    "plan",
    "runner_up",
    "front",
    "energy_front",
    "options",
    "knee",
    "system",
    "statistical",
    "warnings",
]
DOCUMENT_KEYS += ["setup", "confirmations", "targets", "schedule", "exchanges", "switches_at", "exchange_map"]
DOCUMENT_KEYS += ["worker_speeds"]
SETTING_KEYS = ["nodes", "workers", "batch", "global_batch", "lr", "seconds", "worker_seconds", "step", "examples"]
SETTING_KEYS += ["measured", "device", "dollars", "joules"]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    tables = {"system": write_system_csv(folder / "s.csv"), "statistical": write_statistical_csv(folder / "e.csv")}
    return write_plan_folder(folder, (ClusterShape(1, 8), ClusterShape(2, 4)), **tables)


def test_document_is_the_same_after_writing_and_reading(document, tmp_path):
    write_json(tmp_path / "plan.json", document.to_json())
    text = (tmp_path / "plan.json").read_text()
    again = PlanDocument.read(tmp_path / "plan.json")
    assert again == document
    write_json(tmp_path / "again.json", again.to_json())
    assert (tmp_path / "again.json").read_text() == text


@pytest.mark.parametrize("table", ["system", "statistical"])
def test_document_of_one_table_is_the_same_after_reading(table, tmp_path):
    write_table = {"system": write_system_csv, "statistical": write_statistical_csv}[table]
    document = write_plan_folder(tmp_path, (ClusterShape(2, 8),), **{table: write_table(tmp_path / "table.csv")})
    assert PlanDocument.read(tmp_path / "plan.json") == document


def test_keys_keep_their_order(document):
    contents = document.to_json()
    assert [*contents] == DOCUMENT_KEYS
    assert [*contents["front"][0]] == [*contents["knee"]] == SETTING_KEYS
    assert [*contents["options"][0]] == [*SETTING_KEYS, "binding"]
    plan_keys = [*SETTING_KEYS, "binding", "why", "runs", "exchange", "sharding", "momentum"]
    assert [*contents["plan"]] == [*contents["runner_up"]] == plan_keys
    assert [*contents["plan"]["seconds"]] == [*contents["statistical"]["critical_batch"]] == ["value", "low", "high"]


def test_link_has_only_the_estimates_that_are_known():
    alpha = IntervalEstimate(value=2e-4, low=1e-4, high=3e-4)
    assert NetworkLink().to_json() == {}
    assert NetworkLink(alpha_seconds=alpha).to_json() == {"alpha_seconds": {"value": 2e-4, "low": 1e-4, "high": 3e-4}}


def test_unmeasured_request_has_no_sections():
    document = build_plan_document(PlanRequest())
    assert document.plan is document.system is document.statistical is None and document.warnings


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 2),
        (("front",), 3),
        (("front", 0), {}),
        (("warnings",), 7),
        (("status",), "maybe"),
        (("confirmations",), [{}]),
        (("plan",), "x"),
        (("plan", "nodes"), "x"),
        (("plan", "workers"), 0),
        (("plan", "batch"), 10**30),
        (("plan", "lr"), -0.1),
        (("plan", "binding"), "data"),
        (("plan", "seconds"), {"value": 1.0, "low": 0.5}),
        (("plan", "seconds", "high"), 10**400),
        (("plan", "step"), None),
        (("system", "predictions"), [{}]),
        (("system", "parameters"), {"a": "x"}),
        (("system", "links"), {"local": 3}),
        (("statistical", "critical_batch"), {"value": None, "low": 1.0, "high": 2.0}),
    ],
)
def test_invalid_contents_are_refused(document, path, value):
    contents = json.loads(json.dumps(document.to_json()))
    *parents, last = path
    part = contents
    for name in parents:
        part = part[name]
    part[last] = value
    with pytest.raises(EquipoiseError) as error:
        PlanDocument.from_json(contents)
    assert error.value.code == "plan-invalid" and str(path[0]) in error.value.problem


@pytest.mark.parametrize(
    "contents", [None, 3, [], {}, {"name": "terraform", "front": 3}, {"front": [], "warnings": []}]
)
def test_foreign_json_is_not_a_plan(contents):
    with pytest.raises(EquipoiseError) as error:
        PlanDocument.from_json(contents)
    assert error.value.code == "plan-invalid"


def test_confirmations_are_the_same_after_writing_and_reading(document):
    plan, check = document.plan, PredictionCheck(value=9.0, predicted=10.0, ratio=0.9)
    reached = ConfirmationResult(
        nodes=1, workers=plan.workers, batch=plan.batch, lr=plan.lr, seed=1000, outcome="reached target",
        seconds=plan.seconds.value, predicted=plan.seconds, inside=True, examples=check, step=check
    )  # fmt: skip
    missed = replace(reached, seconds=None, inside=False, outcome="failed: the loss was nan", step=None)
    confirmed = replace(document, status="confirmed", confirmations=(missed, reached))
    assert PlanDocument.from_json(json.loads(json.dumps(confirmed.to_json()))) == confirmed
    assert reached.global_batch == plan.global_batch


def build_runs(plan):
    """Build runs with the settings of a plan that confirm it, miss the target, and take too long."""
    check = PredictionCheck(value=9.0, predicted=10.0, ratio=0.9)
    reached = ConfirmationResult(
        nodes=1, workers=plan.workers, batch=plan.batch, lr=plan.lr, seed=1000, outcome="reached target",
        seconds=plan.seconds.value, predicted=plan.seconds, inside=True, examples=check, step=check
    )  # fmt: skip
    missed = replace(reached, seconds=None, inside=False, outcome="max examples")
    return reached, missed, replace(missed, seconds=2 * plan.seconds.high, outcome="reached target")


@pytest.mark.parametrize(
    ("status", "choose"),
    [
        ("confirmed", lambda reached, missed, slower: []),
        ("confirmed", lambda reached, missed, slower: [missed]),
        ("confirmed", lambda reached, missed, slower: [slower]),
        ("confirmed", lambda reached, missed, slower: [reached, missed]),
        ("confirmed", lambda reached, missed, slower: [replace(reached, batch=1)]),
        ("confirmed", lambda reached, missed, slower: [replace(reached, lr=2 * reached.lr)]),
        ("not confirmed", lambda reached, missed, slower: [reached]),
        ("not confirmed", lambda reached, missed, slower: [slower, reached]),
        (None, lambda reached, missed, slower: [reached]),
    ],
)
def test_status_that_contradicts_the_runs_is_refused(document, status, choose):
    contents = document.with_confirmations(choose(*build_runs(document.plan))).to_json()
    contents = json.loads(json.dumps(contents))
    assert json.loads(json.dumps(PlanDocument.from_json(contents).to_json())) == contents
    contents |= {"status": status}
    if status is None:
        del contents["status"]
    with raises_code("plan-invalid", "so the plan is damaged"):
        PlanDocument.from_json(contents)


def test_run_that_contradicts_itself_is_refused(document):
    reached, *_ = build_runs(document.plan)
    contents = json.loads(json.dumps(document.with_confirmations([reached]).to_json()))
    contents["confirmations"][0]["inside"] = False
    with raises_code("plan-invalid", "confirmations[0]"):
        PlanDocument.from_json(contents)


def test_interval_includes_its_bounds():
    interval = IntervalEstimate(value=2.0, low=1.0, high=3.0)
    assert interval.includes(1.0) and interval.includes(3.0) and not interval.includes(3.1)


def test_estimate_is_the_last_draw_with_the_interval_of_the_others():
    draws = pd.Series([*np.linspace(1.0, 2.0, 101), 50.0])
    estimate = summarize_draws(draws)
    assert (estimate.value, estimate.low, estimate.high) == (50.0, pytest.approx(1.1), pytest.approx(1.9))
