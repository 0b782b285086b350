"""Options that training takes from a plan, and options that it refuses together with one."""

import json
from pathlib import Path

import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.document import PlanDocument
from jobs.cli.plan_options import apply_plan, read_recommended_plan
from jobs.train import TrainOptions, WorkerRange, parse_train_options

PLAN = {"workers": 4, "batch": 16, "global_batch": 128, "lr": 0.05, "nodes": 2}


@pytest.fixture
def plan_path(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"schema": 1, "plan": PLAN, "warnings": []}))
    return tmp_path / "plan.json"


def build_options(plan_path, *arguments, **values):
    """Build options with values given by command-line arguments, and apply a plan to them."""
    options = TrainOptions(workload="digits", out=Path("x"), plan=plan_path, **values)
    return apply_plan(options, ["--plan", str(plan_path), *arguments])


def test_plan_sets_workers_batch_accumulation_and_rate(plan_path):
    config = build_options(plan_path).train_config()
    assert (config.workers, config.batch_size, config.grad_accumulation, config.lr) == (4, 16, 2, 0.05)
    assert config.global_batch == PLAN["global_batch"]


def test_command_line_is_looked_at_unless_arguments_are_given(plan_path, monkeypatch):
    options = TrainOptions(workload="digits", out=Path("x"), plan=plan_path, workers=2)
    monkeypatch.setattr("sys.argv", ["--batch-size", "--workers", "2"])
    with pytest.raises(EquipoiseError) as error:
        apply_plan(options)
    assert error.value.code == "option-conflict" and "it has 4 workers and --workers asks for 2" in error.value.problem
    assert apply_plan(options, []).workers == 4
    monkeypatch.setattr("sys.argv", ["--workers", "--plan", str(plan_path)])  # the first word is the program
    assert apply_plan(options).workers == 4


def test_options_that_know_no_plan_are_unchanged():
    assert apply_plan(PLAN, ["--workers", "2"]) is PLAN


def test_plan_may_be_the_folder_of_a_sweep(plan_path):
    assert build_options(plan_path.parent).train_config() == build_options(plan_path).train_config()


def test_options_without_a_plan_are_unchanged():
    options = TrainOptions(workload="digits", out=Path("x"), workers=3)
    assert apply_plan(options, ["--workers", "3"]) is options


def test_options_that_agree_with_the_plan_are_allowed(plan_path):
    arguments = ["--workers", "1:4", "--lr=0.05"]
    flags = ["--workload", "digits", "--out", "x", "--plan", str(plan_path)]
    options = apply_plan(parse_train_options([*flags, *arguments]), arguments)
    assert (options.workers, options.min_workers, options.batch_size) == (4, 1, 16)


def test_plan_needs_all_its_workers_unless_a_range_is_given(plan_path):
    flags = ["--workload", "digits", "--out", "x", "--plan", str(plan_path)]
    options = apply_plan(parse_train_options(flags), flags)
    assert (options.workers, options.min_workers) == (4, 4)


@pytest.mark.parametrize(
    ("text", "worker_range"), [("4", WorkerRange(4, 4)), ("1:4", WorkerRange(1, 4)), ("2:2", WorkerRange(2, 2))]
)
def test_worker_range_is_parsed_and_printed(text, worker_range):
    assert WorkerRange.parse(text) == worker_range == WorkerRange.parse(str(worker_range))
    options = parse_train_options(["--workload", "digits", "--out", "x", "--workers", text])
    assert (options.train_config().workers, options.min_workers) == (worker_range.most, worker_range.fewest)


@pytest.mark.parametrize("text", ["0", "0:4", "5:4", "-1:2"])
def test_impossible_worker_range_is_refused(text):
    with pytest.raises(EquipoiseError) as error:
        WorkerRange.parse(text)
    assert error.value.code == "option-range"


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--workers", "2"], {"workers": 2}),
        (["--batch-size=32"], {"batch_size": 32}),
        (["--grad-accumulation", "1"], {"grad_accumulation": 1}),
        (["--lr", "0.1"], {"lr": 0.1}),
    ],
)
def test_options_that_contradict_the_plan_are_refused(plan_path, arguments, values):
    with pytest.raises(EquipoiseError) as error:
        build_options(plan_path, *arguments, **values)
    assert error.value.code == "option-conflict" and arguments[0].partition("=")[0] in error.value.problem


@pytest.mark.parametrize(
    ("document", "code", "reason"),
    [
        ({"plan": None, "warnings": ["measure a second batch"]}, "plan-missing", "measure a second batch"),
        ({"plan": None}, "plan-missing", "measure more"),
        ({"plan": 3}, "plan-missing", "was not written by jobs.plan"),
        ({"schema": 1}, "plan-missing", "`plan`"),
        ([], "plan-missing", "was not written by jobs.plan"),
        ({"plan": PLAN | {"global_batch": 100}}, "plan-invalid", "100 is not a multiple of 4 workers x 16 examples"),
        ({"plan": {"workers": 4}}, "plan-invalid", "plan: object missing required field `batch`"),
        ({"plan": PLAN | {"workers": "4"}}, "plan-invalid", "plan.workers"),
        ({"plan": PLAN | {"workers": -1}}, "plan-invalid", "plan.workers"),
        ({"plan": PLAN | {"workers": 2.5}}, "plan-invalid", "plan.workers"),
        ({"plan": PLAN | {"batch": True}}, "plan-invalid", "plan.batch"),
        ({"plan": PLAN | {"global_batch": 10**30}}, "plan-invalid", "plan.global_batch"),
        ({"plan": PLAN | {"lr": [1]}}, "plan-invalid", "plan.lr"),
        ({"plan": PLAN | {"lr": 0}}, "plan-invalid", "plan.lr"),
        ({"plan": PLAN | {"lr": 10**400}}, "plan-invalid", "plan.lr"),
        ({"plan": PLAN | {"lr": float("nan")}}, "file-damaged", "NaN"),
    ],
)
def test_invalid_plan_is_refused_with_the_place(plan_path, document, code, reason):
    plan_path.write_text(json.dumps(document))
    with pytest.raises(EquipoiseError) as error:
        build_options(plan_path)
    assert error.value.code == code and reason in error.value.problem


def test_plan_without_a_learning_rate_leaves_that_of_the_options(plan_path):
    plan_path.write_text(json.dumps({"plan": PLAN | {"lr": None}, "warnings": []}))
    assert build_options(plan_path, lr=0.3).lr == 0.3


def test_missing_plan_is_refused_with_a_hint_for_submitted_jobs(tmp_path):
    with pytest.raises(EquipoiseError) as error:
        build_options(tmp_path / "runs" / "plan.json")
    assert error.value.code == "path-missing" and "submitted job" in error.value.remedy


def test_publishing_needs_the_predictions_that_training_does_not(plan_path):
    with pytest.raises(EquipoiseError) as error:
        read_recommended_plan(plan_path, PlanDocument)
    assert error.value.code == "plan-invalid"
