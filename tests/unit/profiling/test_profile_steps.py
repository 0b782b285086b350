"""Profiles of real steps: parts add up, the trace can be read, and what loses the time is named."""

import gzip
import json
import math

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.profiling.advice import add_advice
from equipoise.profiling.memory.measure_step_memory import measure_step_memory
from equipoise.profiling.profile_steps import MAX_TRACE_BYTES, can_apply, profile_steps
from equipoise.profiling.proposal_trials import try_proposals
from equipoise.profiling.step_marks import StepMarks
from equipoise.profiling.step_turns import keep_batches
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.workloads import load_workload
from tests.support.gloo import run_with_gloo

CPU = torch.device("cpu")
SUPPORT = "tests.support.profiled_workloads:"


def profile_workload(name, workers=1, considered=(), tries=False, **options):
    config = TrainConfig(workload=name, workers=workers, **{"batch_size": 16} | options)
    workload = load_workload(config)
    result = profile_steps(config, workload, CPU, 3, considered, nodes=1)
    report = add_advice(result.report)
    if tries:
        report = try_proposals(report, result.stepped, workload, CPU)
    return report, result.trace


def find_proposal(report, name):
    return next(proposal for proposal in report.proposals if proposal.name == name)


def test_parts_add_up_and_the_trace_has_the_layers_of_the_model():
    report, trace = profile_workload("digits")
    (parts,) = report.steps.parts
    names = ("data", "forward", "backward", "optimizer", "exchange", "sync", "other")
    assert sum(getattr(parts, name) for name in names) == pytest.approx(parts.seconds)
    assert parts.seconds == pytest.approx(report.steps.seconds)
    assert parts.exchange == parts.sync == 0 and parts.forward > 0 and parts.backward > 0
    assert len(trace) < MAX_TRACE_BYTES and report.steps.traced_steps == 3
    events = json.loads(gzip.decompress(trace))["traceEvents"]
    assert {"layer: body.0", "equipoise: forward", "equipoise: data"} <= {event["name"] for event in events}
    assert {layer.name for layer in report.layers if layer.seconds} >= {"body.0", "body.3", "body.7", "head"}
    assert sum(layer.seconds for layer in report.layers) == pytest.approx(parts.forward + parts.backward, rel=0.7)
    assert {span.part for span in report.timeline} == {"data", "forward", "backward"}
    assert report.limits.flop_per_second > 0 and report.sync_points == ()


def test_memory_is_predicted_around_the_batch_and_measured_up_to_it():
    memory = profile_workload("digits", batch_size=128)[0].memory
    assert [row.batch for row in memory.rows] == [32, 64, 128, 256, 512]
    assert [row.measured_bytes is None for row in memory.rows] == [False, False, False, True, True]
    assert memory.rows[2].total == pytest.approx(memory.rows[2].measured_bytes, rel=0.1)
    totals = [row.total for row in memory.rows]
    assert totals == sorted(totals) and totals[-1] < 0.85 * memory.available_bytes and memory.largest_batch > 512


def test_single_examples_are_predicted_alone():
    memory = profile_workload("digits", batch_size=2)[0].memory
    assert [(row.batch, row.measured_bytes is None) for row in memory.rows] == [
        *((1, True), (2, False)),
        *((4, True), (8, True)),
    ]


def measure_two_workers():
    config = TrainConfig(workload="digits", workers=2, batch_size=16)
    workload = load_workload(config)
    return [
        measure_step_memory(config.with_defaults(workload.defaults), workload, CPU, nodes).available_bytes
        for nodes in (1, 2)
    ]


def test_workers_on_one_node_share_its_memory(tmp_path):
    first, second = run_with_gloo(2, tmp_path, measure_two_workers)
    assert first == second and first[0] == pytest.approx(first[1] / 2, rel=0.1)


@pytest.mark.parametrize("options", [{"grow_batch": "auto"}, {"scaling_rule": "linear"}], ids=str)
def test_options_of_whole_runs_do_not_keep_steps_from_being_timed(options):
    config = TrainConfig(workload="digits", batch_size=4, **options)
    assert SteppedTraining(config, load_workload(config), CPU).take_block(1)["lap"] > 0


@pytest.mark.slow
def test_short_timings_make_proposals():
    considered = ("double batch", "bf16", "channels_last")
    report, _ = profile_workload("digits", considered=considered)
    assert [*report.timings.batch_seconds] == [4, 8, 16] and {*report.timings.pass_ratios} == {"bf16", "channels_last"}
    assert {*considered} <= {proposal.name for proposal in report.proposals}


@pytest.mark.slow
def test_slow_loader_is_named_first_and_batches_that_are_ready_are_tried():
    report, _ = profile_workload(SUPPORT + "with_slow_loader", tries=True, batch_size=4)
    assert report.losses[0].kind == "data" and report.proposals[0].name == "loader as fast as the step"
    assert report.steps.parts[0].data > 0
    assert find_proposal(report, "more readers").options == {"threads": 2}
    assert find_proposal(report, "loader as fast as the step").tried_gain is not None


def test_layer_that_is_four_times_as_wide_is_named_first():
    report, _ = profile_workload(SUPPORT + "with_wide_layer", batch_size=128)
    layers = [loss.name for loss in report.losses if loss.kind == "layer"]
    assert layers[0] in ("layer 5: Linear", "layer 7: Linear")  # into the wide layer, or out of it


def profile_reduced_loss():
    return profile_workload(SUPPORT + "with_reduced_loss", workers=2, considered=("twice the link",), tries=True)[0]


@pytest.mark.slow
def test_line_that_waits_is_a_proposal_that_can_be_tried(tmp_path):
    first, second = run_with_gloo(2, tmp_path, profile_reduced_loss)
    assert first == second
    (point,) = first.sync_points
    assert point.code == "dist.all_reduce(mean)" and first.steps.parts[0].sync > 0
    assert {"sync", "exchange"} <= {loss.kind for loss in first.losses}
    proposal = find_proposal(first, f"no all_reduce at {point.place}")
    assert proposal.gain.value < 1.05 or proposal.tried_gain is not None
    assert find_proposal(first, "one worker fewer").tried_gain is None
    assert len(first.timings.sum_seconds) > 1 and first.timings.gradient_bytes > 0
    assert {span.worker for span in first.timeline} == {0, 1}
    assert "exchange" in {span.part for span in first.timeline}


def test_cheaper_passes_are_only_proposed_where_they_apply():
    digits, text = (load_workload(TrainConfig(workload=name)) for name in ("digits", "text"))
    config = TrainConfig(workload="digits").with_defaults()
    assert can_apply("channels_last", config, digits) and not can_apply("channels_last", config, text)
    assert not can_apply("bf16", TrainConfig(workload="digits", precision="bf16"), digits)
    assert not can_apply("bf16", TrainConfig(workload="digits", precision="fp64"), digits)


def test_kept_batches_come_again():
    config = TrainConfig(workload="digits", batch_size=8)
    stepped = SteppedTraining(config, load_workload(config), CPU)
    keep_batches(stepped)
    batches = [next(stepped.training.steps.batches) for _ in range(6)]
    assert batches[0][0] is batches[4][0] and batches[0][0] is not batches[1][0]
    assert math.isfinite(stepped.take_block(2)["lap"])


def test_steps_of_workers_that_share_a_process_are_marked_too():
    config = TrainConfig(workload="digits", batch_size=8, workers=2, sync="local:2")
    stepped = SteppedTraining(config, load_workload(config), CPU)
    batches = stepped.training.steps.batches
    with StepMarks(stepped.training, names_ranges=True).set_marks():
        seconds = stepped.take_block(2 * stepped.interval)
    assert {"lap", "data", "compute", "forward", "backward"} <= {*seconds}
    assert seconds["forward"] + seconds["backward"] <= seconds["lap"]
    assert stepped.training.steps.batches is batches and "forward" not in stepped.take_block(2)
