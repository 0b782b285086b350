"""Tests of observing loops: what is counted, and what lies in the folder of the run afterwards."""

import json
import math
import subprocess
import sys
import warnings

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import equipoise
from dashboards.experiments import load_experiment
from dashboards.reports import run_page
from equipoise.observation.observed_run import NO_FORWARD, NO_STEP
from equipoise.observation.step_sampling import LAP_STEPS
from equipoise.runs.folder import read_record
from equipoise.runs.record import Lap
from jobs.timing.timing_records import StepTiming
from tests.support.observed_loops import BATCH, INPUTS, draw_batches, take_steps
from tests.support.ray_cluster import ROOT


def test_laps_hold_the_steps_examples_and_parts_of_the_loop(observe, model, optimizer):
    observer = observe(lap_steps=4)
    take_steps(model, optimizer, draw_batches(10))
    record = observer.close()
    assert [(lap.step, lap.steps, lap.seen) for lap in record.laps] == [
        (4, 4, 4 * BATCH),
        (8, 4, 8 * BATCH),
        (10, 2, 10 * BATCH),
    ]
    for lap in record.laps:
        assert lap.examples == lap.steps * BATCH and lap.lr == 0.1
        assert lap.data_seconds > 0 and lap.compute_seconds > 0 and lap.exchange_seconds == 0
        assert lap.data_seconds + lap.compute_seconds == pytest.approx(lap.seconds)


def test_laps_and_timed_parts_follow_the_steps_of_the_lap_before(observe, model, optimizer):
    observer = observe()
    take_steps(model, optimizer, draw_batches(LAP_STEPS))
    (lap,) = observer.laps
    assert lap.steps == LAP_STEPS
    assert observer.lap_steps == observer.cadence.choose_lap_steps(lap.seconds / lap.steps)
    assert observer.clock.sampling.every == observer.cadence.choose_parts_every(lap.seconds / lap.steps)
    expected = observer.lap_steps
    take_steps(model, optimizer, draw_batches(expected))
    assert [lap.steps for lap in observer.laps] == [LAP_STEPS, expected]
    assert observer.end_stopwatch.seconds > 0 and observer.close().laps[-1].step == LAP_STEPS + expected


def test_record_is_that_of_the_folder_and_its_options_those_of_the_loop(observe, model, optimizer, tmp_path):
    observer = observe(name="mine", seed=7, target=0.9)
    take_steps(model, optimizer, draw_batches(4), accumulation=2)
    record = observer.close()
    assert read_record(tmp_path / "run" / "record.json") == record
    config = record.config
    assert (config.name, config.batch_size, config.workers, config.grad_accumulation) == ("mine", BATCH, 1, 2)
    assert (config.optimizer, config.lr, config.momentum, config.weight_decay) == ("sgd", 0.1, 0.5, 0.01)
    assert (config.seed, config.target, config.precision) == (7, 0.9, "fp64")
    assert json.loads((tmp_path / "run" / "trial.json").read_text())["grad_accumulation"] == 2
    lines = (tmp_path / "run" / "laps.jsonl").read_text().splitlines()
    assert [Lap.from_json(json.loads(line)) for line in lines] == list(record.laps)


def test_system_csv_has_the_columns_of_a_sweep(observe, model, optimizer, tmp_path):
    observer = observe(lap_steps=2)
    take_steps(model, optimizer, draw_batches(6))
    record = observer.close()
    table = pd.read_csv(tmp_path / "run" / "system.csv")
    optional = ("seconds_by_worker", "peak_bytes", "joules", "read_ahead")  # which tables have where they are known
    fields = [name for name in StepTiming.__dataclass_fields__ if name not in optional]
    assert list(table.columns) == fields
    row = table.iloc[0]
    assert (row.nodes, row.workers, row.batch, row.exchange_seconds) == (1, 1, BATCH, 0)
    assert row.gradient_bytes == sum(parameter.nbytes for parameter in model.parameters())
    assert not row["repeat"]
    later = [lap.seconds / lap.steps for lap in record.laps[1:]]
    assert row.seconds == pytest.approx(sum(later) / 2)


def test_page_of_an_observed_run_is_built(observe, model, optimizer, tmp_path):
    observer = observe(name="mine")
    take_steps(model, optimizer, draw_batches(3))
    observer.close()
    experiment = load_experiment(tmp_path / "run")
    assert experiment.kind == "run" and not experiment.problem
    assert run_page(experiment.content).title.startswith("mine")


def test_evaluation_is_not_counted(observe, model, optimizer):
    observer = observe()
    for batch in draw_batches(3):
        take_steps(model, optimizer, [batch])
        model.eval()
        model(batch[0])
        with torch.no_grad():
            model.train()(batch[0])
    (lap,) = observer.close().laps
    assert (lap.steps, lap.data_seconds, lap.seen) == (3, 0, 3 * BATCH)


def test_evaluation_is_not_counted_between_steps_that_are_not_timed_by_part(observe, model, optimizer):
    observer = observe()
    for batch in draw_batches(80):
        take_steps(model, optimizer, [batch])
        model.eval()
        model(batch[0])
        model.train()
    (lap,) = observer.close().laps
    assert (lap.steps, lap.data_seconds) == (80, 0) and lap.seconds == pytest.approx(lap.compute_seconds)


@pytest.mark.parametrize("every", [None, 2])
def test_norms_are_measured_less_often_where_they_take_long_unless_their_interval_is_given(
    observe, model, optimizer, every
):
    observer = observe(lap_steps=15, noise_scale_every=every)
    take_steps(model, optimizer, draw_batches(2 * 30), accumulation=2)
    assert observer.laps[0].draws == (1 if every is None else 7)
    assert (observer.probe.every > 10) if every is None else (observer.probe.every == 2)


def test_short_laps_are_written_to_the_journal_together(observe, model, optimizer, tmp_path):
    observer = observe(lap_steps=1)
    journal = tmp_path / "run" / "laps.jsonl"
    take_steps(model, optimizer, draw_batches(1))
    assert len(journal.read_text().splitlines()) == 1
    observer.run.next_write = math.inf
    take_steps(model, optimizer, draw_batches(2))
    assert len(journal.read_text().splitlines()) == 1
    observer.run.next_write = 0.0
    take_steps(model, optimizer, draw_batches(1))
    assert len(journal.read_text().splitlines()) == 4


def test_reported_metric_ends_a_lap(observe, model, optimizer):
    observer = observe(target=0.5)
    take_steps(model, optimizer, draw_batches(2))
    observer.report(metric=0.25)
    take_steps(model, optimizer, draw_batches(2))
    observer.report(metric=torch.tensor(0.75))
    observer.report(metric=0.875)  # of the same weights
    record = observer.close()
    assert [(lap.step, lap.metric) for lap in record.laps] == [(2, 0.25), (4, 0.875)]
    assert record.status == "reached_target"
    assert record.examples_to_target == pytest.approx(2 * BATCH + 2 * BATCH * 0.25 / 0.625)


def test_metric_that_is_not_finite_is_left_out_with_a_warning(observe, model, optimizer):
    observer = observe()
    take_steps(model, optimizer, draw_batches(1))
    with pytest.warns(RuntimeWarning, match="nan"):
        observer.report(metric=float("nan"))
    assert observer.close().laps[0].metric is None


def test_losses_that_are_given_are_averaged(observe, model, optimizer):
    observer = observe()
    for value in (1.0, 3.0):
        observer.add_loss(torch.tensor(value, requires_grad=True))
        take_steps(model, optimizer, draw_batches(1))
    assert observer.close().laps[0].loss == 2


def test_second_close_changes_nothing(observe, model, optimizer, tmp_path):
    observer = observe()
    take_steps(model, optimizer, draw_batches(2))
    record = observer.close()
    take_steps(model, optimizer, draw_batches(2))
    laps = (tmp_path / "run" / "laps.jsonl").read_bytes()
    observer.report(metric=0.5)  # as of a test after the training
    assert observer.close() is record and len(record.laps) == 1 and observer.laps[0].metric is None
    assert (tmp_path / "run" / "laps.jsonl").read_bytes() == laps
    assert not model._forward_hooks and not model._forward_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_exception_of_the_loop_leaves_a_complete_record_with_its_reason(model, optimizer, tmp_path):
    with (
        pytest.raises(KeyError),
        equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run") as observer,
    ):
        take_steps(model, optimizer, draw_batches(3))
        model(draw_batches(1)[0][0])
        raise KeyError("planted")
    record = read_record(tmp_path / "run" / "record.json")
    assert (record.status, record.reason, record.laps[-1].step) == ("failed", "KeyError: 'planted'", 3)
    assert observer.close() == record
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *(".lock", "laps.jsonl", "record.json", "system.csv", "trial.json"),
    }


def test_optimizer_that_never_steps_leaves_a_record_that_says_so(observe, model, optimizer, tmp_path):
    observer = observe()
    F.cross_entropy(model(draw_batches(1)[0][0]), draw_batches(1)[0][1]).backward()
    record = observer.close()
    assert (record.status, record.reason, list(record.laps)) == ("failed", NO_STEP, [])
    assert not (tmp_path / "run" / "system.csv").exists()


def test_module_that_the_loop_does_not_call_leaves_a_record_that_says_so(model, optimizer, tmp_path):
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

    with equipoise.observe(Wrapper(model), optimizer, batch_size=BATCH, out=tmp_path / "run") as observer:
        take_steps(model, optimizer, draw_batches(2))
    assert observer.close().reason == NO_FORWARD


def test_journal_that_cannot_be_written_is_a_warning_and_training_goes_on(observe, model, optimizer, tmp_path):
    observer = observe(lap_steps=2)
    (tmp_path / "run" / "laps.jsonl").mkdir()
    with pytest.warns(RuntimeWarning, match="cannot write"):
        take_steps(model, optimizer, draw_batches(4))
    (tmp_path / "run" / "laps.jsonl").rmdir()
    assert len(observer.close().laps) == 2


def test_warm_up_that_starts_at_a_learning_rate_of_zero_is_recorded(observe, model, optimizer):
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    observer = observe(lap_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in draw_batches(2):
            take_steps(model, optimizer, [batch])
            schedule.step()
    record = observer.close()
    assert record.config.lr == 0.1 and [lap.lr for lap in record.laps] == pytest.approx([0, 0.01])


def test_step_with_a_closure_is_counted(observe, model, optimizer):
    observer = observe()
    inputs, labels = draw_batches(1)[0]

    def compute_loss():
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(compute_loss)
    (lap,) = observer.close().laps
    assert lap.steps == 3 and observer.config.grad_accumulation == 1


def test_recomputed_activations_are_no_forward_passes(optimizer, model, tmp_path):
    inner = model[0]
    inner_optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    with equipoise.observe(inner, inner_optimizer, batch_size=BATCH, out=tmp_path / "run") as observer:
        inputs = torch.randn(BATCH, INPUTS, dtype=torch.float64, requires_grad=True)
        for reentrant in (False, True):
            torch.utils.checkpoint.checkpoint(inner, inputs, use_reentrant=reentrant).sum().backward()
            inner_optimizer.step()
    assert observer.steps >= 1


FORGETFUL_PROGRAM = """
import torch, equipoise
from tests.support.observed_loops import *
model = build_small_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
equipoise.observe(model, optimizer, batch_size=BATCH, out={out!r})
take_steps(model, optimizer, draw_batches(3))
{ending}
"""


@pytest.mark.parametrize(("ending", "status"), [("", "max_examples"), ("raise KeyError('planted')", "failed")])
def test_observer_that_is_not_closed_writes_its_record_when_the_program_ends(tmp_path, ending, status):
    program = FORGETFUL_PROGRAM.format(out=str(tmp_path / "run"), ending=ending)
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    record = read_record(tmp_path / "run" / "record.json")
    assert record.status == status and record.laps[-1].step == 3, result.stderr
    assert (record.reason or "") == ("" if status == "max_examples" else "KeyError: 'planted'")
