"""--sharding pipeline:K takes the steps of one process, whatever the schedule, the cut and the number of replicas."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads.digits import digits
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.sharded_runs import are_equal, largest_difference, train_sharded

DIGITS = TrainConfig(
    workload="digits",
    batch_size=4,
    workers=2,
    grad_accumulation=2,
    target=2.0,
    max_examples=96,
    eval_every=48,
    precision="fp64",
    sharding="pipeline:2",
)
MLP = replace(DIGITS, workload="tests.support.sharded_workloads:wide_mlp")
GPT = replace(DIGITS, workload="tests.support.sharded_workloads:gpt", target=0.0)
MOMENTUM = {"optimizer": "sgd", "lr": 0.05, "clip_norm": 0.5, "weight_decay": 0.01, "decay_on": "matrices"}
ADAMW = {"optimizer": "adamw", "lr": 0.002, "clip_norm": 0.1, "weight_decay": 0.1, "decay_on": "matrices"}
SHORT_CASES = [
    replace(DIGITS, **MOMENTUM),
    replace(MLP, pipeline_schedule="gpipe", **ADAMW),
    replace(GPT, **ADAMW),
]
OTHER_CASES = [
    replace(DIGITS, freeze_stages=3, keep="best", body_lr_scale=0.3, lr=0.3),
    replace(DIGITS, workload="tests.support.workloads:with_batch_norm", channels_last=True),
    replace(DIGITS, workload="tests.support.workloads:with_unused", weight_decay=0.1),
    # texts of unequal lengths
    replace(GPT, workload="tests.support.any_workloads:sentences", pipeline_schedule="gpipe"),
]


def train_alone(folder, configs):
    return train_sharded(1, folder, [replace(config, sharding="none") for config in configs])


def compare_with_one_process(folder, processes, configs, tolerance=1e-13):
    """Train in pipelines and in one process; states must agree, and laps tell the same."""
    runs, expected = train_sharded(processes, folder, configs), train_alone(folder, configs)
    for config, run, alone in zip(configs, runs, expected, strict=True):
        assert largest_difference(run.state, alone.state) < tolerance, config
        assert [lap.step for lap in run.laps] == [lap.step for lap in alone.laps]
        for lap, other in zip(run.laps, alone.laps, strict=True):
            assert lap.loss == pytest.approx(other.loss, rel=1e-12)
            assert lap.metric == (None if other.metric is None else pytest.approx(other.metric, rel=1e-12))
    return runs, expected


def has_tied_weights(config):
    """Return whether two stages use a weight, whose gradient is then a sum of two parts."""
    return config.workload.endswith(("gpt", "sentences"))


@pytest.mark.parametrize("configs", [SHORT_CASES, pytest.param(OTHER_CASES, marks=pytest.mark.slow)])
def test_two_stages_take_the_steps_of_one_process(tmp_path, configs):
    runs, expected = compare_with_one_process(tmp_path, 2, configs)
    for config, run, alone in zip(configs, runs, expected, strict=True):
        assert has_tied_weights(config) or are_equal(run.state, alone.state), config
    assert not any(lap.all_reduce or lap.draws for run in runs for lap in run.laps)


def lengthen(config, steps):
    return replace(config, max_examples=steps * config.global_batch, eval_every=25 * config.global_batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "steps"), [(4, 10), *(pytest.param(n, 50, marks=pytest.mark.thorough) for n in (2, 3, 4))]
)
def test_many_steps_are_those_of_one_process(tmp_path, processes, steps):
    stages = 2 if processes in (2, 4) else 3
    bases = [replace(config, workers=processes, sharding=f"pipeline:{stages}") for config in (DIGITS, MLP, GPT)]
    changed = [
        replace(config, pipeline_schedule=schedule, **options)
        for config in bases
        for schedule in ("1f1b", "gpipe")
        for options in (MOMENTUM, ADAMW)
    ]
    compare_with_one_process(tmp_path, processes, [lengthen(config, steps) for config in changed])


@pytest.mark.slow
def test_bfloat16_and_single_precision_learn_as_one_process_does(tmp_path):
    configs = [lengthen(replace(MLP, precision=precision), 10) for precision in ("fp32", "bf16")]
    compare_with_one_process(tmp_path, 2, configs, tolerance=1e-6)


@pytest.mark.slow
def test_runs_go_on_in_other_shardings_and_to_the_bit_in_their_own(tmp_path):
    piped = [replace(config, keep="best") for config in SHORT_CASES]
    whole = [replace(config, sharding="none") for config in piped]
    full = train_sharded(2, tmp_path, piped)
    half, half_alone = train_sharded(2, tmp_path, piped, num_laps=1), train_sharded(1, tmp_path, whole, num_laps=1)
    for run, resumed in zip(full, train_sharded(2, tmp_path, piped, half), strict=True):
        assert are_equal(resumed.state, run.state)
    four = [replace(config, workers=4, grad_accumulation=1) for config in piped]  # the same global batch
    others = train_sharded(1, tmp_path, whole, half), train_sharded(2, tmp_path, piped, half_alone)
    for runs in (*others, train_sharded(4, tmp_path, four, half)):
        for run, resumed in zip(full, runs, strict=True):
            assert largest_difference(resumed.state, run.state) < 1e-13


def train_whole(configs):
    """Return the kept weights, metric and laps of finished runs, with the stages that this worker had."""
    results = []
    for config in configs:
        training = Training(config)
        assert training.fits_in_memory()
        trained, evaluation = list(training.sharded.parameters), training.workload.validation
        for _ in training.laps():
            pass
        training.load_kept_weights()
        weights = {name: value.clone() for name, value in training.model.state_dict().items()}
        results.append((weights, training.evaluate(evaluation), training.finished_laps, trained))
    return results


@pytest.mark.slow
def test_every_worker_has_the_whole_model_at_the_end(tmp_path):
    config = replace(GPT, keep="best", eval_every=40)
    first, last = (results[0] for results in run_with_gloo(2, tmp_path, train_whole, [config]))
    assert are_equal(first[0], last[0]) and not any(value.is_meta for value in first[0].values())
    assert first[1] == last[1] == pytest.approx(min(lap.metric for lap in first[2]), rel=1e-9)
    assert set(first[3]) & set(last[3]) == {"token_embedding.weight"}
    assert len(first[3]) + len(last[3]) == len(first[0]) + 1 - ("head.weight" in first[0])


def time_passes(config):
    training = Training(config)
    training.steps.record_timeline()
    for _ in training.laps():
        pass
    return training.steps.list_spans(), training.finished_laps[-1], training.sharded.boundaries


def test_laps_tell_what_neighbours_send_and_spans_when_stages_wait(tmp_path):
    results = run_with_gloo(2, tmp_path, time_passes, replace(MLP, max_examples=32, eval_every=32))
    for spans, lap, boundaries in results:
        (boundary,) = boundaries
        assert [span.micro for span in spans if span.kind == "forward"] == [0, 1, 2, 3]
        assert [span.micro for span in spans if span.kind == "backward"] == [0, 1, 2, 3]
        assert all(first.end <= second.start for first, second in pairwise(spans))
        state = len(torch.get_rng_state()) if boundary.carries_generator else 0
        assert lap.sent_bytes == 4 * (boundary.layout.nbytes + state)
        assert lap.rounds == 8
        drawn = [span for span in lap.pipeline_spans if span.kind != "wait"]
        forward = [(span.stage, span.micro) for span in drawn if span.kind == "forward"]
        assert forward == [*product(range(2), range(4))]
        assert len(drawn) == 16 and all(span.end >= span.start for span in drawn)
    assert results[0][1].pipeline_spans == results[1][1].pipeline_spans
    assert any(span.kind == "wait" for span in results[1][0])


class OneLayer(nn.Module):
    """Model of a single layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 16, 16))

    def forward(self, images):
        return torch.einsum("ncij,kij->nk", images, self.weight)


def one_layer(trial):
    return replace(digits(trial), model=OneLayer)


def refuse_options(config):
    with raises_code("option-conflict", "--compile"):
        Training(replace(config, compile=True))
    with raises_code("sharding-unusable", "into 2 stages", "1 piece"):
        Training(replace(config, workload=f"{__name__}:one_layer"))


@pytest.mark.slow
def test_unusable_options_are_refused_on_all_workers(tmp_path):
    run_with_gloo(2, tmp_path, refuse_options, DIGITS)
