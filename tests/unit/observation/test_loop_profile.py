"""Tests of the profile of an observed loop: its parts against waits that were put in, its bytes against shapes."""

import gzip
import json
import time
import warnings
from dataclasses import replace

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import equipoise
from dashboards.experiments import load_experiment
from dashboards.page import render_html
from dashboards.profile_page import build_profile_page, describe_profile
from dashboards.reports import build_page, write_pages
from equipoise.errors import EquipoiseError
from equipoise.observation.profiling.loop_profile import NO_PROFILE
from equipoise.observation.profiling.loop_profiler import PROFILED_BLOCK_STEPS
from tests.support.gloo import run_with_gloo
from tests.support.observed_loops import (
    BATCH,
    CLASSES,
    INPUTS,
    SMALL_MODEL_OPERATIONS,
    build_small_model,
    draw_batches,
    list_operations,
    read_profile,
    take_steps,
)

FIRST_LAP, TRACED = 4, 3
ENOUGH_STEPS = FIRST_LAP + PROFILED_BLOCK_STEPS + 2 + TRACED
PART_NAMES = ("data", "forward", "backward", "optimizer", "exchange", "sync", "other")


@pytest.fixture
def profile(observe):
    """Observe a loop that is profiled after a short first lap."""

    def start(**options):
        return observe(lap_steps=FIRST_LAP, profile_steps=TRACED, **options)

    return start


def test_parts_of_a_profiled_step_add_up_to_it(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    observer.close()
    report = read_profile(tmp_path / "run")
    (parts,) = report.steps.parts
    assert sum(getattr(parts, name) for name in PART_NAMES) == pytest.approx(parts.seconds, rel=0.02)
    assert min(parts.data, parts.forward, parts.backward, parts.optimizer) > 0 == parts.exchange == parts.sync
    assert report.steps.traced_steps == TRACED and report.nodes == 1 and not report.sync_points
    assert {span.part for span in report.timeline} >= {"data", "forward", "backward", "optimizer"}


def test_layers_have_seconds_and_the_bytes_of_their_shapes(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(2 * ENOUGH_STEPS), accumulation=2)
    observer.close()
    layers = {layer.name: layer for layer in read_profile(tmp_path / "run").layers}
    assert [(name, layer.kind) for name, layer in layers.items()] == [("0", "Linear"), ("1", "Tanh"), ("2", "Linear")]
    last = layers["2"]
    assert (last.input_bytes, last.output_bytes) == (8 * 8, CLASSES * 8)  # numbers of 8 bytes, whatever is accumulated
    assert last.parameter_bytes == (8 + 1) * CLASSES * 8
    assert layers["0"].input_bytes == INPUTS * 8
    assert all(layer.forward_seconds > 0 and layer.backward_seconds > 0 for layer in layers.values())


def test_trace_has_the_parts_and_layers_of_its_steps(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    observer.close()
    events = json.loads(gzip.decompress((tmp_path / "run" / "trace-worker-0.json.gz").read_bytes()))["traceEvents"]
    names = [event.get("name") for event in events]
    for name in ("equipoise: forward", "equipoise: backward", "equipoise: optimizer", "layer: 0"):
        assert names.count(name) == TRACED


def test_wait_for_batches_is_named_the_largest_loss(profile, model, optimizer, tmp_path):
    observer = profile()
    for batch in draw_batches(ENOUGH_STEPS):
        time.sleep(0.01)
        take_steps(model, optimizer, [batch])
    observer.close()
    report = read_profile(tmp_path / "run")
    assert report.losses[0].kind == "data" and report.losses[0].seconds >= 0.01
    assert report.proposals[0].name == "loader as fast as the step"
    assert "waiting for batches" in "\n".join(describe_profile(report))


def test_wait_between_accumulated_batches_is_waiting_for_batches_too(profile, model, optimizer, tmp_path):
    observer = profile()
    for index, (inputs, labels) in enumerate(draw_batches(2 * ENOUGH_STEPS)):
        F.cross_entropy(model(inputs), labels).backward()
        if index % 2:
            time.sleep(0.01)  # clipping, for example
            optimizer.step()
        else:
            time.sleep(0.005)
    observer.close()
    (parts,) = read_profile(tmp_path / "run").steps.parts
    assert parts.optimizer >= 0.01 and 0.005 <= parts.data < parts.optimizer


def observe_with_call(folder, has_call):
    """Profile a loop on two workers, whose steps read a scalar that all of them sum."""
    model = DistributedDataParallel(build_small_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with equipoise.observe(
        model, optimizer, batch_size=BATCH, out=folder, lap_steps=FIRST_LAP, profile_steps=TRACED
    ) as observer:
        for inputs, labels in draw_batches(ENOUGH_STEPS):
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            if has_call:
                total = loss.detach().clone()
                dist.all_reduce(total)
            optimizer.step()
            optimizer.zero_grad()
    return observer.profile.state, len(model._forward_hooks)


def test_line_that_holds_all_workers_is_named_on_two_workers(tmp_path):
    assert run_with_gloo(2, tmp_path, observe_with_call, tmp_path / "run", True) == [("written", 0)] * 2
    report = read_profile(tmp_path / "run")
    (point,) = report.sync_points
    assert (point.operation, point.code, point.calls) == ("all_reduce", "dist.all_reduce(total)", 1)
    assert point.place.startswith("test_loop_profile.py:") and 0 < point.seconds <= point.longest_seconds
    assert len(report.steps.parts) == 2
    for parts in report.steps.parts:
        assert parts.exchange > 0 and parts.sync > 0
        assert sum(getattr(parts, name) for name in PART_NAMES) == pytest.approx(parts.seconds, rel=0.02)
    assert {span.worker for span in report.timeline} == {0, 1}
    assert [layer.name for layer in report.layers] == ["0", "1", "2"]  # of the model inside of the wrapper
    assert list_operations(report.layers) == SMALL_MODEL_OPERATIONS
    actions = {proposal.name: proposal.action for proposal in report.proposals}
    assert actions["one worker fewer"] == "train on 1 of the workers"


def test_gradients_that_workers_exchange_are_no_line_of_the_loop(tmp_path):
    assert run_with_gloo(2, tmp_path, observe_with_call, tmp_path / "run", False) == [("written", 0)] * 2
    assert not read_profile(tmp_path / "run").sync_points


def test_evaluation_breaks_a_block_which_is_taken_again(profile, model, optimizer, tmp_path):
    observer = profile()
    batches = draw_batches(2 * ENOUGH_STEPS)
    for index, batch in enumerate(batches):
        take_steps(model, optimizer, [batch])
        if index % 13 == 12:
            time.sleep(0.1)
            model.eval()
            with torch.no_grad():
                model(batch[0])
            model.train()
            observer.report(metric=0.5)
    observer.close()
    report = read_profile(tmp_path / "run")
    (parts,) = report.steps.parts
    assert parts.data < 0.1 / (PROFILED_BLOCK_STEPS / 2)  # no block has a pause in it
    assert len(observer.laps) > 3 and all(lap.metric is None or lap.metric == 0.5 for lap in observer.laps)


def test_pause_in_the_trace_ends_it_with_the_steps_so_far(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS - 1))
    observer.pause()
    take_steps(model, optimizer, draw_batches(FIRST_LAP))
    observer.close()
    assert read_profile(tmp_path / "run").steps.traced_steps == TRACED - 1


def test_loop_that_pauses_all_the_time_has_no_profile_and_says_so(profile, model, optimizer, tmp_path):
    observer = profile()
    for batch in draw_batches(5 * ENOUGH_STEPS):
        take_steps(model, optimizer, [batch])
        observer.pause()
    assert observer.hooks.profiler is None  # it is not tried for ever
    assert max(observer.profile.laps) < len(observer.laps) - 5  # the laps after it count
    with pytest.warns(RuntimeWarning, match="there is no profile"):
        observer.close()
    assert not (tmp_path / "run" / "profile.json").exists()


def test_loop_that_ends_too_soon_has_no_profile_and_says_so(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS - 1))
    with pytest.warns(RuntimeWarning, match=NO_PROFILE[:30]):
        record = observer.close()
    assert record.laps and not (tmp_path / "run" / "profile.json").exists()
    assert not torch.autograd._profiler_enabled()
    assert not optimizer._optimizer_step_pre_hooks and not model._forward_hooks and not model[0]._forward_hooks


def test_profile_that_is_ready_at_the_end_is_written_by_closing(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observer.close()
    assert (tmp_path / "run" / "profile.json").exists()


def test_profiled_steps_are_those_of_an_unprofiled_loop(profile, model, optimizer):
    other = build_small_model()
    take_steps(other, torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01), draw_batches(90))
    profile()
    take_steps(model, optimizer, draw_batches(90))
    for expected, found in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(expected, found)


def test_profiled_laps_are_left_out_of_system_csv(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS + 3 * FIRST_LAP))
    record = observer.close()
    assert [lap.step for lap in record.laps] == [
        *range(FIRST_LAP, record.laps[-1].step, FIRST_LAP),
        record.laps[-1].step,
    ]
    usual = [lap for index, lap in enumerate(record.laps) if index not in observer.profile.laps]
    assert 2 <= len(usual) < len(record.laps) - PROFILED_BLOCK_STEPS / FIRST_LAP
    expected = [lap.seconds / lap.steps for lap in usual[1:]]
    row = pd.read_csv(tmp_path / "run" / "system.csv").iloc[0]
    assert min(expected) <= row.seconds <= max(expected)


def test_compiled_model_is_not_compiled_again(observe, tmp_path):
    model = torch.compile(build_small_model(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = tmp_path / "compiled"
    with equipoise.observe(model, optimizer, batch_size=BATCH, out=out, lap_steps=FIRST_LAP, profile_steps=TRACED):
        take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    report = read_profile(out)
    assert not report.layers and report.steps.parts[0].forward > 0


@pytest.mark.parametrize("steps", [1, -1, 1001])
def test_number_of_traced_steps_is_refused_outside_of_its_range(observe, steps):
    with pytest.raises(EquipoiseError, match=f"got {steps}"):
        observe(profile_steps=steps)


def test_pages_of_an_observed_run_include_its_profile(profile, model, optimizer, tmp_path):
    observer = profile(name="mine")
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    observer.close()
    experiment = load_experiment(tmp_path / "run")
    assert [path.name for path in write_pages(experiment)] == ["run.html", "profile.html"]
    assert [link.href for link in build_page(experiment, "run").links] == ["profile.html"]
    html = (tmp_path / "run" / "profile.html").read_text()
    assert (
        "Profile: mine" in html
        and "At best a worker computes" in html
        and 'id="roofline"' in html
        and 'id="layers"' in html
    )
    (tmp_path / "run" / "profile.json").write_text('{"schema": 1}')
    assert [path.name for path in write_pages(experiment)] == ["run.html"] and not build_page(experiment, "run").links


def test_page_without_proposals_says_that_there_is_nothing_to_gain(profile, model, optimizer, tmp_path):
    observer = profile()
    take_steps(model, optimizer, draw_batches(ENOUGH_STEPS))
    observer.close()
    report = replace(read_profile(tmp_path / "run"), proposals=())
    assert "Nothing to gain here" in render_html(build_profile_page(report))
