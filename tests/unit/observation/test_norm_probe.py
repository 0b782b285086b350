"""Tests of the norms against gradients that are computed by hand in fp64, and against our own training loop."""

import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from equipoise.config import TrainConfig
from equipoise.number_bounds import MIN_LEARNING_RATE
from equipoise.observation.norm_probe import NormProbe, Stopwatch, squared_norm
from equipoise.observation.observer import observe
from equipoise.observation.worker_lap import NO_DRAW, ONE_GRADIENT, UNEQUAL_GRADIENTS, UNUSABLE_GRADIENTS
from equipoise.training.loop import Training
from tests.support.gloo import run_with_gloo
from tests.support.observed_loops import BATCH, build_small_model, compute_gradient, draw_batches, take_steps

EXACT = 1e-9


def observe_steps(out, batches, accumulation, every=1, train=take_steps):
    """Observe a loop that keeps its weights, and return its observer after it was closed."""
    model = build_small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=MIN_LEARNING_RATE)
    with observe(model, optimizer, batch_size=BATCH, out=out, noise_scale_every=every) as observer:
        train(model, optimizer, batches, accumulation)
    return observer


def expected_norms(groups):
    """Return the mean squared norm of the gradients in all groups, and that of the mean gradient of each group."""
    model = build_small_model()
    rows = [torch.stack([compute_gradient(model, batch) for batch in group]) for group in groups]
    local = torch.cat(rows).square().sum(1).mean()
    return float(local), float(torch.stack([row.mean(0).square().sum() for row in rows]).mean())


def test_norms_of_accumulated_gradients_are_those_computed_by_hand(tmp_path):
    batches = draw_batches(12)
    observer = observe_steps(tmp_path / "run", batches, accumulation=3)
    (lap,) = observer.laps
    groups = [batches[start : start + 3] for start in (3, 6, 9)]  # a first step tells that gradients are accumulated
    assert (lap.local_norm, lap.total_norm) == pytest.approx(expected_norms(groups), rel=EXACT)
    assert (lap.local_batch, lap.total_batch, lap.draws) == (BATCH, 3 * BATCH, 3)
    assert observer.noise_scale_reason is None


def test_stopwatch_sums_its_blocks_alone():
    stopwatch, start = Stopwatch(), time.perf_counter()
    for _ in range(2):
        with stopwatch:
            time.sleep(0.01)
        time.sleep(0.02)
    elapsed = time.perf_counter() - start
    assert 0.02 <= stopwatch.seconds <= elapsed - 0.04
    assert stopwatch.pop_seconds() >= 0.02 and stopwatch.pop_seconds() == 0


def test_seconds_of_the_norms_are_the_mean_over_measured_steps():
    probe = NormProbe([nn.Parameter(torch.zeros(2))], workers=2, every=1)
    assert probe.pop_step_seconds() == 0
    for num_measured in (1, 4):
        probe.stopwatch.seconds, probe.num_measured = 3.0, num_measured
        assert probe.pop_step_seconds() == 3.0 / num_measured


def test_only_every_so_many_steps_are_measured(tmp_path):
    batches = draw_batches(14)
    (lap,) = observe_steps(tmp_path / "run", batches, accumulation=2, every=3).laps
    assert lap.draws == 2
    assert lap.total_norm == pytest.approx(expected_norms([batches[6:8], batches[12:14]])[1], rel=EXACT)


def test_one_gradient_per_step_has_no_noise_scale(tmp_path):
    observer = observe_steps(tmp_path / "run", draw_batches(4), accumulation=1)
    assert observer.noise_scale is None and observer.noise_scale_reason == ONE_GRADIENT


def test_zero_turns_the_measurement_off(tmp_path):
    observer = observe_steps(tmp_path / "run", draw_batches(8), accumulation=2, every=0)
    assert observer.laps[0].draws == 0 and observer.noise_scale_reason == NO_DRAW


def test_gradients_that_are_never_zeroed_have_no_noise_scale(tmp_path):
    def train(model, optimizer, batches, accumulation):
        for index, (inputs, labels) in enumerate(batches):
            F.cross_entropy(model(inputs), labels).backward()
            if index % accumulation:
                optimizer.step()

    observer = observe_steps(tmp_path / "run", draw_batches(8), accumulation=2, train=train)
    assert observer.laps[0].local_norm is None and observer.noise_scale_reason == UNUSABLE_GRADIENTS


def test_gradients_set_to_zero_between_forward_and_backward_are_measured(tmp_path):
    batches = draw_batches(8)

    def train(model, optimizer, batches, accumulation):
        for index, (inputs, labels) in enumerate(batches):
            loss = F.cross_entropy(model(inputs), labels) / accumulation
            if index % accumulation == 0:
                optimizer.zero_grad(set_to_none=index % 4 == 0)
            loss.backward()
            if index % accumulation:
                optimizer.step()

    (lap,) = observe_steps(tmp_path / "run", batches, accumulation=2, train=train).laps
    groups = [batches[start : start + 2] for start in (2, 4, 6)]
    assert (lap.local_norm, lap.total_norm) == pytest.approx(expected_norms(groups), rel=EXACT)


def test_step_that_accumulates_fewer_micro_batches_is_not_compared(tmp_path):
    batches = draw_batches(6)

    def train(model, optimizer, batches, accumulation):
        take_steps(model, optimizer, batches[:4], accumulation)
        take_steps(model, optimizer, batches[4:5], 1)

    (lap,) = observe_steps(tmp_path / "run", batches, accumulation=2, train=train).laps
    assert (lap.steps, lap.draws) == (3, 1)


def test_frozen_parameters_have_no_part_in_the_norms(tmp_path):
    model = build_small_model()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=MIN_LEARNING_RATE)
    batches = draw_batches(4)
    with observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", noise_scale_every=1) as observer:
        take_steps(model, optimizer, batches, 2)
    last = sum(parameter.numel() for parameter in model[2].parameters())
    rows = torch.stack([compute_gradient(build_small_model(), batch)[-last:] for batch in batches[2:]])
    assert observer.laps[0].local_norm == pytest.approx(float(rows.square().sum(1).mean()), rel=EXACT)
    assert observer.laps[0].total_norm == pytest.approx(float(rows.mean(0).square().sum()), rel=EXACT)


def test_hooks_are_gone_after_a_measured_step_and_gradients_are_unchanged(tmp_path):
    watched, alone = build_small_model(), build_small_model()
    for model in (watched, alone):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if model is watched:
            observer = observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", noise_scale_every=1)
        take_steps(model, optimizer, draw_batches(8), 2)
    observer.close()
    assert all(not parameter._backward_hooks for parameter in watched.parameters())
    weights = zip(watched.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(one_weight, another) for one_weight, another in weights)


def test_norm_of_a_half_precision_gradient_is_summed_in_fp32_and_that_of_a_sparse_one_is_unknown():
    gradient = torch.full((1000,), 0.125, dtype=torch.bfloat16)
    assert float(squared_norm(gradient)) == pytest.approx(1000 / 64, rel=1e-6)
    assert squared_norm(gradient).dtype == torch.float32
    assert torch.isnan(squared_norm(torch.eye(3).to_sparse()))


def observe_with_ddp(folder, accumulation, bucket_views, has_hook):
    """Observe DDP on two workers, and return its lap with what is expected of it."""
    rank = dist.get_rank()
    model = DistributedDataParallel(build_small_model(), gradient_as_bucket_view=bucket_views)
    if has_hook:
        model.register_comm_hook(None, average_bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=MIN_LEARNING_RATE)
    batches = [draw_batches(3 * accumulation, seed=worker) for worker in range(2)]
    with observe(model, optimizer, batch_size=BATCH, out=folder / "run", noise_scale_every=1) as observer:
        for index, (inputs, labels) in enumerate(batches[rank]):
            is_last = (index + 1) % accumulation == 0
            with nullcontext() if is_last else model.no_sync():
                (F.cross_entropy(model(inputs), labels) / accumulation).backward()
            if is_last:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    groups = [
        [batch for own in batches for batch in own[step * accumulation : (step + 1) * accumulation]]
        for step in range(3)
    ]
    return observer.laps[0], expected_norms(groups), sorted(path.name for path in (folder / "run").iterdir())


def average_bucket(_, bucket):
    """Average gradients as a user's own communication hook does."""
    buffer = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: future.value()[0])


@pytest.mark.parametrize(
    ("accumulation", "bucket_views", "has_hook"), [(1, False, False), (1, True, True), (2, True, False)]
)
def test_norms_of_two_workers_are_those_computed_by_hand(tmp_path, accumulation, bucket_views, has_hook):
    results = run_with_gloo(2, tmp_path, observe_with_ddp, tmp_path, accumulation, bucket_views, has_hook)
    (lap, expected, files), (other, _, _) = results
    assert (lap.local_norm, lap.total_norm) == pytest.approx(expected, rel=EXACT)
    assert (lap.workers, lap.examples, lap.total_batch) == (2, 6 * accumulation * BATCH, 2 * accumulation * BATCH)
    assert lap.draws == 3 and lap == other
    assert ("system.csv" in files) == (accumulation == 1)


def observe_without_averaging(folder):
    """Observe two workers whose gradients nobody averages before the backward pass ends."""
    model = build_small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=MIN_LEARNING_RATE)
    with observe(model, optimizer, batch_size=BATCH, out=folder / "run", noise_scale_every=1) as observer:
        take_steps(model, optimizer, draw_batches(3, seed=dist.get_rank()))
    return observer.laps[0].local_norm, observer.noise_scale_reason


def test_gradients_that_are_averaged_elsewhere_have_no_noise_scale(tmp_path):
    assert run_with_gloo(2, tmp_path, observe_without_averaging, tmp_path) == [(None, UNEQUAL_GRADIENTS)] * 2


STEPS = 6
LOOP_CONFIG = TrainConfig(
    workload="digits",
    batch_size=16,
    workers=2,
    lr=MIN_LEARNING_RATE,
    warmup=0,
    precision="fp64",
    augment=False,
    target=2.0,
    max_examples=STEPS * 32,
    eval_every=STEPS * 32,
    noise_scale_every=1,
)


def compare_with_own_loop(folder):
    """Return the lap of our own loop, and that of an observed loop with the same weights and batches."""
    (lap,) = Training(LOOP_CONFIG).laps()
    training = Training(LOOP_CONFIG)
    batches = training.loader.train_batches(training.micro_indices, 0)
    model = DistributedDataParallel(training.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=MIN_LEARNING_RATE)
    with observe(model, optimizer, batch_size=16, out=folder / "run", noise_scale_every=1) as observer:
        for _ in range(STEPS):
            images, labels = next(batches)
            training.workload.loss(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return lap, observer.laps[0]


def test_norms_are_those_of_our_own_loop_with_the_same_weights_and_batches(tmp_path):
    own, observed = run_with_gloo(2, tmp_path, compare_with_own_loop, tmp_path)[0]
    for name in ("local_norm", "total_norm", "local_batch", "total_batch", "draws", "steps", "examples"):
        assert getattr(observed, name) == pytest.approx(getattr(own, name), rel=1e-7), name
    assert replace(observed, draws=0).noise_terms() == pytest.approx(own.noise_terms(), rel=1e-6)
