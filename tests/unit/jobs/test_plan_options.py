"""What a training takes of a plan, and what it refuses beside one."""

import json
from pathlib import Path

import pytest

from jobs.cli.plan_options import apply_plan
from jobs.train import TrainOptions, WorkerRange

PLAN = {"workers": 4, "batch": 16, "global_batch": 128, "lr": 0.05, "nodes": 2}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"schema": 1, "plan": PLAN, "warnings": []}))
    return tmp_path / "plan.json"


def asked(path, *words, **more):
    made = TrainOptions(workload="digits", out=Path("x"), plan=path, **more)
    return apply_plan(made, ["--plan", str(path), *words])


def test_a_plan_is_taken_whole(path):
    trial = asked(path).train_config()
    assert (trial.workers, trial.batch_size, trial.grad_accumulation, trial.lr) == (4, 16, 2, 0.05)
    assert trial.global_batch == PLAN["global_batch"]


def test_a_sweep_s_folder_will_do(path):
    assert asked(path.parent).train_config() == asked(path).train_config()


def test_no_plan_changes_nothing():
    made = TrainOptions(workload="digits", out=Path("x"), workers=3)
    assert apply_plan(made, ["--workers", "3"]) is made


def test_what_agrees_with_it_may_be_said_too(path):
    span = WorkerRange.parse("1:4")
    found = asked(path, "--workers", "1:4", "--lr=0.05", workers=span, lr=0.05)
    assert (found.workers, found.min_workers, found.batch_size) == (4, 1, 16)


@pytest.mark.parametrize(
    ("words", "more", "said"),
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
def test_what_contradicts_it_is_refused(path, words, more, said):
    with pytest.raises(ValueError, match=said):
        asked(path, *words, **more)


@pytest.mark.parametrize(
    ("facts", "said"),
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
def test_what_is_no_plan_is_a_sentence(path, facts, said):
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=said):
        asked(path)


def test_a_plan_that_did_not_travel_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="a submitted job needs an absolute path"):
        asked(tmp_path / "runs" / "plan.json")
