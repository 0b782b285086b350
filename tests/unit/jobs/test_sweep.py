import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import tyro

from equipoise.config import TrainConfig
from equipoise.planning.search import Suggestion
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.registries.option_groups import COMMAND_OPTIONS
from equipoise.storage.atomic import write_json
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.pace_drift import add_pace_noise, estimate_pace_drift
from jobs.ray_tune.sweep_options import SharedTrainConfig, SweepOptions
from jobs.ray_tune.trial_records import load_finished_trials
from jobs.ray_tune.tuner import SweepTrials
from jobs.timing.timing_records import ExchangeTiming, StepTiming, WorkerCountTimings, load_timings, max_repeat_error
from tests.support.errors import raises_code
from tests.support.trial_records import build_record

LEFT_OUT_OPTIONS = {"workers", "batch_size", "lr", "grad_accumulation", "keep", "patience"}
LEFT_OUT_OPTIONS |= {"sync", "compression", "servers", "sharding"}  # parts of the name of a way of exchange
LEFT_OUT_OPTIONS |= {"scaling_rule", "base_batch", "grow_batch"}  # each batch has a rate of its own, and stays
"""options of training that a sweep chooses itself or has no use for"""


def build_options(**values):
    return SweepOptions(config=SharedTrainConfig(workload="digits"), out=Path("x"), **values)


def parse_options(*arguments):
    trained = [] if "--command" in arguments else ["--workload", "digits"]
    return tyro.cli(SweepOptions, args=[*trained, "--out", "x", *arguments])


def choose_other_value(field):
    """Return a valid value of an option of training that is not its default."""
    kind = get_type_hints(TrainConfig)[field.name]
    kinds = {kind, *get_args(kind)}
    kinds |= {other for kind in kinds for other in get_args(kind)}  # the choices of an option that may be left out
    if field.name in ("momentum", "outer_momentum", "beta2", "label_smoothing", "average_weights"):  # must be below 1
        return 0.5
    if names := [kind for kind in kinds if isinstance(kind, str)]:
        return max(names)
    if bool in kinds:
        return not field.default
    if kinds & {int, float}:
        return (field.default or 0) + 3
    return "other"


def format_arguments(name, value):
    """Return the arguments of the command line that set an option."""
    flag = name.replace("_", "-")
    return [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]


@pytest.mark.parametrize(
    "field",
    [field for field in fields(TrainConfig) if field.name not in {*LEFT_OUT_OPTIONS, *COMMAND_OPTIONS}],
    ids=lambda field: field.name,
)
def test_every_other_option_of_training_reaches_a_trial(field):
    value = choose_other_value(field)
    needed = {"lora_rank": ("--init-from", str(Path("other").absolute()))}.get(field.name, ())
    base = parse_options(*needed, *format_arguments(field.name, value)).base_config()
    assert type(base) is TrainConfig
    sweep_trials = SweepTrials(base=base, folder=Path("x"), workers_by_batch={64: 2}, slots=1)
    trial = sweep_trials.build_trial(Suggestion(global_batch=64, lr=0.1, seed=0))
    assert getattr(trial, field.name) == (
        str(Path("other").absolute()) if field.name in ("data", "init_from") else value
    )
    default = parse_options(*needed).base_config()
    changed = {name for name, other in asdict(trial).items() if other != getattr(default, name)}
    assert changed <= {field.name, "batch_size", "lr", "grad_accumulation"}


def test_a_command_and_its_patterns_reach_a_trial_on_all_of_its_workers():
    arguments = ("--command", "train {lr}", "--metric-pattern", "(a)", "--examples-pattern", "(b)")
    sweep_trials = SweepTrials(
        base=parse_options(*arguments).base_config(),
        folder=Path("x"),
        workers_by_batch={64: 2},
        slots=2,
        real_workers=True,
    )
    trial = sweep_trials.build_trial(Suggestion(global_batch=64, lr=0.1, seed=3))
    assert (trial.command, trial.metric_pattern, trial.examples_pattern) == ("train {lr}", "(a)", "(b)")
    assert (trial.workers, trial.batch_size, trial.grad_accumulation, trial.seed) == (2, 32, 1, 3)


def test_options_of_training_that_a_sweep_leaves_out_are_its_ranges_or_refused(capsys):
    options = parse_options("--workers", "1", "2", "4", "--batch-size", "16:64", "--lr", "0.01:0.5")
    assert (options.workers, options.batch_size, options.lr) == ((1, 2, 4), "16:64", "0.01:0.5")
    for name in LEFT_OUT_OPTIONS - {"workers", "batch_size", "lr"}:
        with pytest.raises(SystemExit):
            parse_options(f"--{name.replace('_', '-')}", "3")
        assert "Unrecognized options" in capsys.readouterr().err


def test_batches_double_up_to_the_size_of_the_training_split():
    assert build_options(batch_size="8:100").batches_per_worker() == [8, 16, 32, 64]
    assert build_options(workers=(2, 1, 2), batch_size="8:64").batches_by_workers(100) == {
        1: [8, 16, 32, 64],
        2: [8, 16, 32],
    }
    assert build_options(workers=(1, 20), batch_size="8:16").batches_by_workers(100) == {1: [8, 16]}


@pytest.mark.parametrize("batch", ["8", "64:8", "0:8", "a:b", "8:16:32"])
def test_invalid_batch_range_is_refused(batch):
    with raises_code("option-format", "batch-size"):
        build_options(batch_size=batch).batches_per_worker()


def test_batches_larger_than_the_training_split_are_refused():
    with raises_code("option-range", "128:512", 100):
        build_options(batch_size="128:512").batches_by_workers(100)


def test_learning_rate_is_an_initial_value_or_a_range():
    assert build_options(lr="0.1").initial_lr_and_bounds()[0] == 0.1
    start, bounds = build_options(lr="0.01:0.09").initial_lr_and_bounds()
    assert start == pytest.approx(0.03) and bounds == (0.01, 0.09)


@pytest.mark.parametrize("lr", ["0", "-1", "nan", "inf", "1:0.1", "a", "0.1:0.2:0.3", ""])
def test_invalid_learning_rate_is_refused(lr):
    with raises_code("option-format", "lr"):
        build_options(lr=lr).initial_lr_and_bounds()


@pytest.mark.parametrize("invalid", [{"workers": ()}, {"workers": (0, 1)}, {"budget_seconds": 0.0}, {"seeds": 0}])
def test_invalid_options_are_refused(invalid):
    with raises_code("option-range", next(iter(invalid)).replace("_", "-")):
        build_options(**invalid).validate()


def test_exhaustive_sweep_has_no_time_limit():
    assert build_options(budget_seconds=100.0).budget.seconds == 100.0
    assert build_options(budget_seconds=100.0, exhaustive=True).budget.seconds == float("inf")


def test_fastest_workers_are_found_for_each_global_batch():
    rows = [
        (1, 1, 8, 0.010),
        (1, 1, 16, 0.018),
        (1, 2, 8, 0.013),
        (1, 2, 16, 0.016),
        (1, 1, 32, 0.034),
        (1, 2, 32, 0.026),
    ]
    step_time_fit = fit_step_time(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    fastest = FastestWorkers(step_time_fit)
    assert fastest.workers_by_batch == {8: 1, 16: 2, 32: 2, 64: 2}
    assert fastest.step_seconds(8) == pytest.approx(0.010, rel=0.1)
    fastest.keep_batches([16, 64])
    assert fastest.workers_by_batch == {16: 2, 64: 2}


def test_timing_error_is_that_of_the_setting_timed_twice():
    row = StepTiming(nodes=1, workers=1, batch=8, seconds=0.010, data_seconds=0.0, exchange_seconds=0.0, pace_sd=0.1,
              gradient_bytes=4000)  # fmt: skip
    timings = pd.DataFrame([vars(row), vars(row) | {"seconds": 0.011, "repeat": True}])
    assert max_repeat_error(timings) == pytest.approx(0.1)
    assert max_repeat_error(timings[~timings["repeat"]]) is None


def test_damaged_timing_file_is_refused_with_the_remedy(tmp_path):
    row = {"nodes": 1, "workers": 1, "batch": 8, "seconds": 0.01, "data_seconds": 0.0, "exchange_seconds": 0.0}
    row |= {"pace_sd": 0.1, "gradient_bytes": 4000, "repeat": False}
    exchange = {"nodes": 2, "workers": 2, "kind": "sum", "bytes": 4096, "seconds": 0.001}
    document = {"rows": [row], "too_large": [16], "exchanges": [exchange]}
    path = tmp_path / "workers-1.json"
    assert load_timings(path) == WorkerCountTimings(rows=[], too_large=[], exchanges=[])
    path.write_text(json.dumps(document))
    timings = load_timings(path)
    assert timings == WorkerCountTimings(
        rows=[StepTiming(**row)], too_large=[16], exchanges=[ExchangeTiming(**exchange)]
    )
    assert timings.missing_batches([8, 16]) == [] and timings.missing_batches([8, 32]) == [32]
    invalid_documents = [document | {"rows": [row | {"seconds": -1}]}, document | {"exchanges": [{"bytes": 1}]}]
    for text in ("{", "{}", "[]", "null", *map(json.dumps, invalid_documents)):
        path.write_text(text)
        with raises_code("file-damaged", "workers-1.json"):
            load_timings(path)


def test_pace_drift_is_estimated_from_trials_of_the_same_batch():
    rng = np.random.default_rng(0)
    trials = [(batch / 1000 * np.exp(0.2 * rng.standard_normal()), batch) for batch in (8, 16, 64) for _ in range(100)]
    assert estimate_pace_drift([build_record(*trial) for trial in trials]) == pytest.approx(0.2, rel=0.1)
    assert estimate_pace_drift(
        [build_record(batch / 1000, batch) for batch in (8, 16, 64) for _ in range(3)]
    ) == pytest.approx(0)


def test_too_few_trials_give_no_pace_drift():
    assert estimate_pace_drift([]) == 0
    assert estimate_pace_drift([build_record(0.1, 8), build_record(0.2, 8), build_record(0.1, 16)]) == 0


def test_pace_drift_is_added_for_timing_and_for_training():
    rows = pd.DataFrame({"seconds": [1.0], "pace_sd": [0.1]})
    assert add_pace_noise(rows, 0.2).pace_sd.tolist() == pytest.approx([0.3])


def test_damaged_trial_record_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "batch-8.json").write_text('{"schema": 1')
    with raises_code("run-damaged", "batch-8.json"):
        load_finished_trials(tmp_path, TrainConfig(workload="digits"))


@pytest.mark.parametrize("change", [{"workload": "vending"}, {"seed": 1}, {"lr": 0.1}, {"momentum": 0.5}])
def test_record_of_another_trial_is_refused_with_the_remedy(tmp_path, change):
    trial = TrainConfig(workload="digits", batch_size=8).with_defaults()
    path, record = tmp_path / "batch-8-lr-0.05-seed-0.json", build_record(0.1, 8)
    write_json(path, record.to_json())
    assert len(load_finished_trials(tmp_path, trial)) == 1
    write_json(path, replace(record, config=replace(trial, **change)).to_json())
    with raises_code("run-mismatch", "seed-0.json"):
        load_finished_trials(tmp_path, trial)
