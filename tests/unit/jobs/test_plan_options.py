"""Options that training takes from a plan, and options that it refuses together with one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import write_json
from jobs.cli.plan_options import apply_plan, read_recommended_plan, require_planned_settings
from jobs.train import TrainOptions, WorkerRange, parse_train_options
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest
from tests.support.plan_documents import write_plan_json

PLAN = {"workers": 4, "batch": 16, "global_batch": 128, "lr": 0.05, "nodes": 2}


@pytest.fixture
def plan_path(tmp_path):
    return write_plan_json(tmp_path / "plan.json", PLAN)


def build_options(plan_path, *arguments, **values):
    """Build options with values given by command-line arguments, and apply a plan to them."""
    options = TrainOptions(workload="digits", out=Path("x"), plan=plan_path, **values)
    return apply_plan(options, ["--plan", str(plan_path), *arguments])


def test_plan_sets_workers_batch_accumulation_and_rate(plan_path):
    config = build_options(plan_path).train_config()
    assert (config.workers, config.batch_size, config.grad_accumulation, config.lr) == (4, 16, 2, 0.05)
    assert config.global_batch == PLAN["global_batch"]


def test_plan_whose_exchange_is_an_algorithm_sets_the_all_reduce(tmp_path):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": "tree"})
    assert build_options(path).train_config().all_reduce == "tree"
    assert build_options(path, "--all-reduce", "tree", all_reduce="tree").all_reduce == "tree"
    with raises_code("option-conflict", "it has --all-reduce tree, and the command line has --all-reduce ring"):
        build_options(path, "--all-reduce", "ring", all_reduce="ring")
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": "tree", "global_batch": 64})
    command = TrainOptions(command="train {lr}", out=Path("x"), plan=path)
    assert apply_plan(command, []).all_reduce == "backend"


def test_plan_of_a_sharding_sets_it(tmp_path):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": "full", "sharding": "full"})
    assert build_options(path).train_config().sharding == "full"
    with raises_code("option-conflict", "it has --sharding full, and the command line has --sharding optimizer"):
        build_options(path, "--sharding", "optimizer", sharding="optimizer")


def test_command_line_is_looked_at_unless_arguments_are_given(plan_path, monkeypatch):
    options = TrainOptions(workload="digits", out=Path("x"), plan=plan_path, workers=2)
    monkeypatch.setattr("sys.argv", ["--batch-size", "--workers", "2"])
    with pytest.raises(EquipoiseError) as error:
        apply_plan(options)
    assert error.value.code == "option-conflict" and "it has --workers 4, and" in error.value.problem
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


def test_sharding_is_compared_with_the_workers_of_the_plan(plan_path, capsys):
    flags = ["--workload", "digits", "--out", "x", "--plan", str(plan_path), "--sharding"]
    arguments = [*flags, "pipeline:2"]
    config = apply_plan(parse_train_options(arguments), arguments).train_config()
    assert (config.workers, config.sharding) == (4, "pipeline:2")
    assert "with --sharding pipeline:2" in capsys.readouterr().err  # the times of the plan are others
    with raises_code("sharding-unusable", "4 workers"):
        apply_plan(parse_train_options([*flags, "full:3"]), arguments)


def test_run_of_whole_models_says_nothing_of_sharding(plan_path, capsys):
    flags = ["--workload", "digits", "--out", "x", "--plan", str(plan_path)]
    assert apply_plan(parse_train_options(flags), flags).sharding == "none" and not capsys.readouterr().err


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_pipeline_schedule_without_a_pipeline_is_refused(sharding):
    flags = ["--workload", "digits", "--out", "x", "--workers", "2", "--pipeline-schedule", "gpipe", "--sharding"]
    with raises_code("option-conflict", "--pipeline-schedule"):
        parse_train_options([*flags, sharding]).train_config()
    assert parse_train_options([*flags, "pipeline:2"]).train_config().pipeline_schedule == "gpipe"


@pytest.mark.parametrize(
    ("text", "worker_range"), [("4", WorkerRange(4, 4)), ("1:4", WorkerRange(1, 4)), ("2:2", WorkerRange(2, 2))]
)
def test_worker_range_is_parsed_and_printed(text, worker_range):
    assert WorkerRange.parse(text) == worker_range == WorkerRange.parse(str(worker_range))
    options = parse_train_options(["--workload", "digits", "--out", "x", "--workers", text])
    assert (options.train_config().workers, options.min_workers) == (worker_range.most, worker_range.fewest)


def test_range_with_a_number_of_workers_that_an_all_reduce_cannot_run_is_refused():
    flags = ["--workload", "digits", "--out", "x", "--all-reduce", "doubling", "--workers"]
    assert (
        parse_train_options([*flags, "1:2"]).all_reduce == parse_train_options([*flags, "4"]).all_reduce == "doubling"
    )
    with raises_code("all-reduce-unusable", "over 3 workers by doubling", "--all-reduce ring"):
        parse_train_options([*flags, "1:4"])


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


def test_option_with_an_underscore_is_seen_as_the_parser_sees_it(plan_path):
    flags = ["--workload", "digits", "--out", "x", "--plan", str(plan_path)]
    for spelling in (["--batch_size", "32"], ["--batch_size=32"], ["--batch-size=32"], ["--grad_accumulation", "1"]):
        options = parse_train_options([*flags, *spelling])
        with raises_code("option-conflict", "the command line has"):
            apply_plan(options, [*flags, *spelling])
    agreeing = [*flags, "--batch_size=16"]
    assert apply_plan(parse_train_options(agreeing), agreeing).batch_size == 16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"global_batch": 100}, "100 is not a multiple of 4 workers x 16 examples"),
        ({"workers": "4"}, "plan.workers"),
        ({"workers": -1}, "plan.workers"),
        ({"workers": 2.5}, "plan.workers"),
        ({"batch": True}, "plan.batch"),
        ({"global_batch": 10**30}, "plan.global_batch"),
        ({"lr": [1]}, "plan.lr"),
        ({"lr": 0}, "plan.lr"),
        ({"lr": 1e18}, "plan.lr"),
        ({"lr": 10**400}, "plan.lr"),
        ({"nodes": 0}, "plan.nodes"),
        ({"nodes": 5}, "4 workers cannot run on 5 nodes"),
        ({"worker_seconds": None}, "plan.worker_seconds"),
        ({"worker_seconds": -1}, "plan.worker_seconds"),
        ({"seconds": None}, "plan.seconds"),
        ({"seconds": {"value": None, "low": 1.0, "high": 2.0}}, "plan.seconds.value"),
        ({"seconds": {"value": -1, "low": 1.0, "high": 2.0}}, "plan.seconds.value"),
        ({"seconds": {"value": "1", "low": 1.0, "high": 2.0}}, "plan.seconds.value"),
        ({"seconds": {"value": 0, "low": 0, "high": 2.0}}, "0 seconds"),
        ({"seconds": {"value": 1.5, "low": 2.0, "high": 1.0}}, "an interval from 2 to 1"),
    ],
)
def test_impossible_plan_is_refused_with_the_place(plan_path, changes, reason):
    contents = json.loads(plan_path.read_text())
    contents["plan"] |= changes
    plan_path.write_text(json.dumps(contents))
    with raises_code("plan-invalid", reason):
        build_options(plan_path)


@pytest.mark.parametrize("schema", [2, 0, None, "1", True, 1.0, [1]])
def test_plan_of_another_schema_is_refused(plan_path, schema):
    write_plan_json(plan_path, PLAN, schema=schema)
    with raises_code("plan-invalid", "schema"):
        build_options(plan_path)


def test_plan_without_a_schema_is_refused(plan_path):
    contents = json.loads(plan_path.read_text())
    del contents["schema"]
    plan_path.write_text(json.dumps(contents))
    with raises_code("plan-invalid", "its schema is None"):
        build_options(plan_path)


@pytest.mark.parametrize("contents", [[], 3, None, {"schema": 1}, {"schema": 1, "plan": 3}])
def test_other_json_is_said_to_be_no_plan(plan_path, contents):
    plan_path.write_text(json.dumps(contents))
    with raises_code("plan-missing", "it is not a plan"):
        build_options(plan_path)


def test_manifest_of_a_bundle_is_said_to_be_no_plan(tmp_path):
    write_json(tmp_path / "bundle.json", build_manifest().to_json())
    with raises_code("plan-missing", "it is not a plan"):
        build_options(tmp_path / "bundle.json")


@pytest.mark.parametrize(("warnings", "reason"), [(["measure a second batch"], "measure a second batch"), ([], "more")])
def test_document_that_recommends_nothing_is_refused_with_the_reason(plan_path, warnings, reason):
    write_plan_json(plan_path, warnings=warnings)
    with raises_code("plan-missing", "it recommends no plan", reason):
        build_options(plan_path)


@pytest.mark.parametrize("exchange", ["ours", "async:2/bf16", "server/tree"])
def test_plan_with_an_exchange_that_training_cannot_do_is_refused(tmp_path, exchange):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": exchange})
    with raises_code("plan-invalid", f"it exchanges by {exchange}"):
        read_recommended_plan(path)


@pytest.mark.parametrize(
    ("exchange", "sync", "compression"),
    [("", "step", "none"), ("local:8", "local:8", "none"), ("local:8/bf16", "local:8", "bf16"),
     ("powersgd:4", "step", "powersgd:4"), ("topk:0.01", "step", "topk:0.01"), ("server", "server", "none"),
     ("async:2/servers:1", "async:2", "none")],
)  # fmt: skip
def test_plan_sets_when_and_what_workers_exchange(tmp_path, exchange, sync, compression):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": exchange})
    config = build_options(path).train_config()
    assert (config.sync, config.compression) == (sync, compression)
    other = "diloco:8" if sync != "diloco:8" else "step"
    with raises_code("option-conflict", f"it has --sync {sync}, and the command line has --sync {other}"):
        build_options(path, "--sync", other, sync=other)


def test_plan_sets_servers_and_momentum(tmp_path):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": "async:2/servers:2", "momentum": 0.0})
    config = build_options(path).train_config()
    assert (config.sync, config.servers, config.momentum) == ("async:2", 2, 0.0)
    with raises_code("option-conflict", "it has --momentum 0, and the command line has --momentum 0.5"):
        build_options(path, "--momentum", "0.5", momentum=0.5)


def test_plan_of_another_way_of_exchange_is_refused_for_a_command(tmp_path):
    path = write_plan_json(tmp_path / "plan.json", PLAN | {"exchange": "local:8", "global_batch": 64})
    command = TrainOptions(command="train {lr}", out=Path("x"), plan=path)
    with raises_code("plan-invalid", "to a --command: it exchanges by local:8"):
        apply_plan(command, [])


def test_nan_in_a_plan_is_refused(plan_path):
    plan_path.write_text(plan_path.read_text().replace("0.05", "NaN"))
    with raises_code("file-damaged", "NaN"):
        build_options(plan_path)


def test_plan_without_a_learning_rate_leaves_that_of_the_options(plan_path):
    write_plan_json(plan_path, PLAN | {"lr": None})
    assert build_options(plan_path, lr=0.3).lr == 0.3


def test_missing_plan_is_refused_with_a_hint_for_submitted_jobs(tmp_path):
    with pytest.raises(EquipoiseError) as error:
        build_options(tmp_path / "runs" / "plan.json")
    assert error.value.code == "path-missing" and "submitted job" in error.value.remedy


def test_run_with_other_settings_than_a_plan_is_refused_with_both(plan_path):
    plan = read_recommended_plan(plan_path).plan
    planned = TrainConfig(workload="digits", workers=4, batch_size=16, grad_accumulation=2, lr=0.05)
    require_planned_settings(plan_path, plan, Path("run"), planned)
    for name, value in (("lr", 0.1), ("batch_size", 8), ("workers", 2), ("grad_accumulation", 1)):
        flag = f"--{name.replace('_', '-')}"
        with raises_code("plan-mismatch", f"{flag} {getattr(planned, name):g}", f"{flag} {value:g}"):
            require_planned_settings(plan_path, plan, Path("run"), replace(planned, **{name: value}))
    require_planned_settings(plan_path, replace(plan, lr=None), Path("run"), replace(planned, lr=0.3))
