"""jobs.compare_devices refuses what cannot be compared, and times steps of real workers in turns."""

import os
import sys

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.planning.device_comparison.comparison_report import COMPARISON_FILE
from equipoise.planning.device_comparison.predict_sharing import compare_steps
from equipoise.workloads import load_workload
from jobs import compare_devices
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import find_result_kind
from jobs.compare_devices import ComparisonOptions
from jobs.profiling.alternating_group import AlternatingGroup
from jobs.profiling.comparison_worker import ComparisonWorkerConfig, SharingBench
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

CPU = torch.device("cpu")


def parse_comparison_options(*arguments):
    return parse_options(ComparisonOptions, ["--out", "x", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--command", "python train.py"), "option-conflict"),
        *(
            (("--workload", "digits", *more), "option-conflict")
            for more in (
                ("--sync", "local:4"),
                ("--sharding", "full"),
                ("--compression", "bf16"),
                ("--grad-accumulation", "2"),
                ("--all-reduce", "auto"),
            )
        ),
        *(
            (("--workload", "digits", *more), "option-range")
            for more in (
                ("--workers", "1"),
                ("--seconds", "0"),
                ("--batch-size", "33"),
                ("--batch-sizes", "8", "9"),
                ("--batch-sizes", "8", "8"),
                ("--batch-sizes", "0", "8"),
            )
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, code):
    with raises_code(code):
        parse_comparison_options(*arguments)


def test_batches_are_those_of_the_run_and_powers_of_two_that_workers_can_share():
    options = parse_comparison_options("--workload", "digits", "--batch-size", "48")
    assert options.list_batches(600) == [8, 16, 32, 48, 64, 128, 256, 512]
    assert options.train_config() == TrainConfig(workload="digits", batch_size=48)
    three = parse_comparison_options("--workload", "digits", "--workers", "3", "--batch-size", "30")
    assert three.list_batches(100) == [6, 15, 30, 63]
    given = parse_comparison_options("--workload", "digits", "--batch-sizes", "4096", "64")
    assert given.list_batches(100) == [64, 4096]


def test_folder_of_another_result_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys):
    (tmp_path / "record.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["compare", "--workload", "digits", "--out", str(tmp_path)])
    assert compare_devices.main() == 2
    assert "holds a run, and this command writes a comparison" in capsys.readouterr().err
    (tmp_path / "record.json").rename(tmp_path / COMPARISON_FILE)
    assert find_result_kind(tmp_path) == "comparison"


def sum_ranks_after_working_apart():
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    group = AlternatingGroup(CPU)
    ranks = group.work_apart(lambda: (group.rank, torch.distributed.is_initialized()))
    first = group.work_alone(lambda: group.rank + 10)
    total = torch.tensor(group.rank + 1)
    torch.distributed.all_reduce(total)
    return ranks, first, int(total)


def test_workers_that_worked_apart_are_a_group_again(tmp_path):
    results = run_with_gloo(3, tmp_path, sum_ranks_after_working_apart)
    assert results == [([(0, False), (1, False), (2, False)], 10, 6)] * 3


def measure_small_turns(batches, measured):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    trial = TrainConfig(workload="digits", batch_size=8)
    config = ComparisonWorkerConfig(trial=trial, workers=2, batches=batches, measured=measured, seconds=30.0)
    bench = SharingBench(config, load_workload(trial), AlternatingGroup(CPU), CPU)
    compared, turns = bench.measure_turns(max_turns=1)
    return compared, turns, bench.gradient_bytes


@pytest.mark.parametrize("measured", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_batch_is_timed_alone_beside_the_other_and_shared(tmp_path, measured):
    (batches, turns, gradient_bytes), (_, other_turns, _) = run_with_gloo(
        2, tmp_path, measure_small_turns, [4, 8], measured
    )
    assert batches == [4, 8] and turns == other_turns  # all workers know what each measured
    assert {*turns.one} == {2, 4, 8} and {*turns.beside} == {2, 4}
    assert {*turns.several} == ({4, 8} if measured else set())
    columns = [turns.exchange, turns.last_bucket, *turns.one.values(), *turns.beside.values(), *turns.several.values()]
    assert {len(column) for column in columns} == {1}
    model = load_workload(TrainConfig(workload="digits")).model()
    assert gradient_bytes == sum(parameter.nbytes for parameter in model.parameters())
    assert [row.batch for row in compare_steps(batches, turns).rows] == [4, 8]


def test_two_batches_are_compared_however_little_time_there_is():
    trial = TrainConfig(workload="digits", batch_size=8)
    config = ComparisonWorkerConfig(trial=trial, workers=2, batches=[4, 8, 16], measured=True, seconds=1e-3)
    bench = SharingBench(config, load_workload(trial), None, CPU)  # one worker alone needs no group
    assert [*bench.choose_step_counts()] == [2, 4, 8]
