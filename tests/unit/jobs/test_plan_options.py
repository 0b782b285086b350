"""Options that training takes from a plan, and options that it refuses together with one."""

import json
from pathlib import Path

import pytest

from jobs.cli.plan_options import apply_plan
from jobs.train import TrainOptions, WorkerRange

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


def test_plan_may_be_the_folder_of_a_sweep(plan_path):
    assert build_options(plan_path.parent).train_config() == build_options(plan_path).train_config()


def test_options_without_a_plan_are_unchanged():
    options = TrainOptions(workload="digits", out=Path("x"), workers=3)
    assert apply_plan(options, ["--workers", "3"]) is options


def test_options_that_agree_with_the_plan_are_allowed(plan_path):
    worker_range = WorkerRange.parse("1:4")
    options = build_options(plan_path, "--workers", "1:4", "--lr=0.05", workers=worker_range, lr=0.05)
    assert (options.workers, options.min_workers, options.batch_size) == (4, 1, 16)


@pytest.mark.parametrize(
    ("arguments", "values", "message"),
    [
        (["--workers", "2"], {"workers": 2}, "has 4 workers and --workers asks for 2"),
        (["--batch-size=32"], {"batch_size": 32}, "has 16 examples per worker and --batch-size asks for 32"),
        (
            ["--grad-accumulation", "1"],
            {"grad_accumulation": 1},
            "has 2 micro-steps and --grad-accumulation asks for 1",
        ),
        (["--lr", "0.1"], {"lr": 0.1}, "has 0.05 as the learning rate and --lr asks for 0.1"),
    ],
)
def test_options_that_contradict_the_plan_are_refused(plan_path, arguments, values, message):
    with pytest.raises(ValueError, match=message):
        build_options(plan_path, *arguments, **values)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"plan": None, "warnings": ["measure a second batch"]}, "has no plan: measure a second batch"),
        (
            {"plan": PLAN | {"global_batch": 100}},
            "its global batch of 100 is not a multiple of 4 workers x 16 examples",
        ),
        ({"plan": None}, "has no plan: measure more"),
        ({"plan": {"workers": 4}}, r"plan\.batch must be a whole number from 1 to 1e12, got None"),
        ({"plan": PLAN | {"workers": "4"}}, r"plan\.workers must be a whole number from 1 to 1e12, got '4'"),
        ({"plan": PLAN | {"workers": -1}}, "got -1"),
        ({"plan": PLAN | {"batch": True}}, "got True"),
        ({"plan": PLAN | {"global_batch": 1e30}}, r"got 1e\+30"),
        ({"plan": PLAN | {"lr": [1]}}, r"plan\.lr must be a number above 0, or null, got \[1\]"),
        ({"plan": PLAN | {"lr": float("nan")}}, "NaN and Infinity are not allowed"),
        ({"plan": PLAN | {"lr": 10**400}}, "must be a number above 0"),
        ({"plan": 3}, r"was not written by jobs\.plan or jobs\.sweep"),
        ([], r"was not written by jobs\.plan or jobs\.sweep"),
    ],
)
def test_invalid_plan_is_refused(plan_path, document, message):
    plan_path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=message):
        build_options(plan_path)


def test_missing_plan_is_refused_with_a_hint_for_submitted_jobs(tmp_path):
    with pytest.raises(ValueError, match="a submitted job needs an absolute path"):
        build_options(tmp_path / "runs" / "plan.json")
