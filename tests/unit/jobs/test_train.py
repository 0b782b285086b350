"""Summary of a run on the terminal, in both directions of its metric and without a target."""

from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.config import TrainConfig
from jobs.train import format_noise_scale, format_summary, format_target_result, parse_train_options
from tests.support.errors import raises_code
from tests.unit.dashboards.test_training_run import record


def test_target_is_shown_with_its_direction_and_when_it_was_reached():
    missed = record()
    assert format_target_result(missed) == "at least 0.9 on validation: not reached"
    reached = replace(missed, target=0.2, lower_is_better=True, examples_to_target=1234.4, status="reached_target")
    assert format_target_result(reached) == "at most 0.2 on validation: 1,234 examples"


def test_run_without_a_target_shows_its_best_metric():
    rising = replace(record(), target=None)  # metrics of 0.4 and 0.8
    assert format_target_result(rising) == "none; the best metric on validation was 0.8"
    assert format_target_result(replace(rising, lower_is_better=True)) == "none; the best metric on validation was 0.4"
    assert format_target_result(replace(rising, laps=[])) == "none"


def test_summary_of_a_run_of_a_command_names_its_program_and_what_was_not_measured():
    unknown = dict.fromkeys(("lr", "loss", "data_seconds", "compute_seconds", "exchange_seconds", "local_norm"))
    laps = [replace(lap, **unknown) for lap in record().laps]
    config = TrainConfig(command="python train.py --lr {lr}")
    lines = format_summary(replace(record(), config=config, laps=laps, target=None, test=None), Path("x")).splitlines()
    assert lines[0].startswith("train.py: 1 worker x 32 x 1 = 32 examples per step")
    facts = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert facts["target"] == "none; the best metric on validation was 0.8"
    assert "kept" not in facts
    assert facts["test"] == "not measured"
    assert facts["noise"] == "not measurable: the program does not show its gradients"


def test_noise_scale_is_shown_in_the_unit_of_the_workload_too():
    assert format_noise_scale(record()) == "about 20 examples"
    assert format_noise_scale(replace(record(), unit="tokens", units_per_example=64)) == (
        "about 20 examples (1,280 tokens)"
    )
    assert format_noise_scale(replace(record(), laps=[])) == "not measurable: no step was measured"


def test_servers_are_compared_with_the_workers_of_the_command_line():
    arguments = ["--workload", "digits", "--out", "runs/x", "--sync", "server", "--servers", "2", "--workers"]
    for workers in ("2", "1:3"):
        config = parse_train_options([*arguments, workers]).train_config()
        assert (config.servers, config.workers) == (2, int(workers[-1]))
    with raises_code("option-range", "got 2 servers for 1 worker:"):
        parse_train_options([*arguments, "1"])


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--sync", "local:4", "--outer-lr", "0.5"], "--outer-lr has no effect with --sync local"),
        (["--outer-momentum", "0.5"], "--outer-momentum has no effect with --sync step"),
        (["--no-error-feedback"], "--no-error-feedback has no effect without --compression"),
    ],
)
def test_options_of_another_way_of_exchange_are_refused(flags, part):
    arguments = ["--workload", "digits", "--out", "runs/x", "--workers", "2"]
    with raises_code("option-conflict", part):
        parse_train_options([*arguments, *flags]).train_config()
    effective = ["--sync", "diloco:4", "--outer-lr", "1", "--outer-momentum", "0", "--compression", "int8"]
    assert parse_train_options([*arguments, *effective, "--no-error-feedback"]).train_config().outer_lr == 1


def test_sharding_is_compared_with_the_workers_of_the_command_line():
    arguments = ["--workload", "digits", "--out", "runs/x", "--sharding", "tensor:2", "--workers"]
    for workers in ("2", "4", "1:2"):
        config = parse_train_options([*arguments, workers]).train_config()
        assert (config.sharding, config.workers) == ("tensor:2", int(workers[-1]))
    with raises_code("sharding-unusable", "1 workers"):
        parse_train_options([*arguments, "1"])


@pytest.mark.parametrize(("workers", "number"), [("1:4", 3), ("3:4", 3), ("2:6", 3)])
def test_groups_of_an_elastic_run_fit_all_of_its_workers(workers, number):
    arguments = ["--workload", "digits", "--out", "runs/x", "--workers", workers, "--sharding"]
    for sharding in ("full:2", "tensor:2", "pipeline:2"):
        with raises_code("sharding-unusable", f"{number} workers", workers):
            parse_train_options([*arguments, sharding])
    for sharding in ("full", "optimizer"):
        assert parse_train_options([*arguments, sharding]).sharding == sharding
