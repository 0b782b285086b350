"""Training on data of any structure: n workers take the steps of one, and a step is torch's own."""

import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import Split
from equipoise.workloads.batch import call_model
from tests.support import any_workloads
from tests.support.gloo import run_with_gloo

WORKLOADS = ["table", "text", "sentences", "equal_sentences"]
SHARED_OPTIONS = {"precision": "fp64", "max_examples": 480, "eval_every": 96, "target": None}


def train(name, options, steps=None):
    """Train a workload of tests.support.any_workloads; return its weights, metrics and test result."""
    workload = getattr(any_workloads, name)(target=None)
    training = Training(
        TrainConfig(workload=f"tests.support.any_workloads:{name}", **SHARED_OPTIONS | options), workload
    )
    laps = list(training.laps())
    assert training.status == "max_examples", training.reason
    metrics = [lap.metric for lap in laps if lap.metric is not None]
    return training.state_dict(), [*metrics, training.evaluate(workload.test)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_two_workers_take_the_steps_of_one_that_accumulates(name, tmp_path):
    one, metrics = train(name, {"batch_size": 8, "grad_accumulation": 2})
    results = run_with_gloo(2, tmp_path, train, name, {"batch_size": 8, "workers": 2})
    for weights, other_metrics in results:
        assert weights.keys() == one.keys()
        assert max(float((weights[key] - one[key]).abs().max()) for key in one) <= 1e-13
        assert other_metrics == pytest.approx(metrics, rel=1e-12)
    assert any((one[key] != 0).any() for key in one if key.startswith("optimizer"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_steps_are_those_of_torch_adamw_with_clipping(name):
    options = {"batch_size": 16, "weight_decay": 0.1, "warmup": 0.0, "noise_scale_every": 0, "max_examples": 320}
    workload = getattr(any_workloads, name)(target=None)
    config = TrainConfig(workload=f"tests.support.any_workloads:{name}", **SHARED_OPTIONS | options)
    training = Training(config, workload)
    settled = training.config
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = workload.model().double().train()
    decayed = [p for p in model.parameters() if p.ndim > 1 or settled.decay_on == "all"]
    rest = [p for p in model.parameters() if not any(p is other for other in decayed)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=settled.lr,
        betas=(0.9, settled.beta2),
    )
    norms = []
    batches = training.loader.train_batches(range(1), 0)
    for _ in range(20):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        workload.loss(call_model(model, inputs), targets).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), settled.clip_norm)))
        optimizer.step()
    list(training.laps())
    assert max(norms) > settled.clip_norm > 0  # else clipping would not be tested
    for (key, expected), value in zip(model.named_parameters(), training.model.parameters(), strict=True):
        assert (value - expected).abs().max() <= 1e-12, key


def test_biases_and_norms_do_not_decay_if_only_matrices_do():
    workload = any_workloads.table()
    for decay_on in ("all", "matrices"):
        config = TrainConfig(workload="x:y", weight_decay=0.1, decay_on=decay_on)
        optimizer = Training(config, workload).optimizer.optimizer
        decays = {
            int(parameter.ndim): group["weight_decay"]
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        assert decays == {1: 0.1 if decay_on == "all" else 0.0, 2: 0.1}


def evaluate_in_small_batches(workers):
    training = Training(TrainConfig(workload="x:y", precision="fp64", workers=workers), any_workloads.table())
    training.evaluate(training.workload.test)
    training.evaluator.batch_size = 4
    return training.evaluate(training.workload.validation)


def test_score_of_all_rows_is_exact_on_any_number_of_workers(tmp_path):
    expected = evaluate_in_small_batches(1)
    for workers in (2, 3):
        assert run_with_gloo(workers, tmp_path, evaluate_in_small_batches, workers) == [expected] * workers
    training = Training(TrainConfig(workload="x:y", precision="fp64"), any_workloads.table())
    split = training.workload.validation
    with torch.no_grad():
        outputs = training.model(split.inputs[0].double(), split.inputs[1])
    residual, spread = (
        (outputs - split.targets).square().sum(),
        (split.targets.double() - split.targets.mean()).square(),
    )
    assert expected == pytest.approx(float(1 - residual / spread.sum()), abs=1e-6)


def test_tied_weights_are_saved_once_and_stay_tied():
    training = Training(TrainConfig(workload="x:y", max_examples=96), any_workloads.text(target=None))
    list(training.laps())
    tensors = load(save(training.state_dict()))
    assert "model.embedding.weight" in tensors and "model.head.weight" not in tensors
    resumed = Training(TrainConfig(workload="x:y", seed=5), any_workloads.text())
    resumed.load_state_dict(tensors, training.finished_laps)
    assert torch.equal(resumed.model.head.weight, training.model.head.weight)
    assert resumed.model.head.weight is resumed.model.embedding.weight


def test_missing_weights_are_refused_beside_tied_ones():
    training = Training(TrainConfig(workload="x:y"), any_workloads.text())
    tensors = {name: value for name, value in training.state_dict().items() if name != "model.norm.bias"}
    with pytest.raises(RuntimeError, match=r"norm\.bias"):
        training.load_state_dict(tensors, [])


def test_resumed_run_is_bit_equal():
    config = TrainConfig(workload="x:y", batch_size=8, max_examples=384, eval_every=96)
    whole = Training(config, any_workloads.sentences(target=None))
    states = []
    for _ in whole.laps():
        state = {name: value.clone() for name, value in whole.state_dict().items()}
        states.append((state, list(whole.finished_laps)))
    resumed = Training(config, any_workloads.sentences(target=None))
    resumed.load_state_dict(*states[1])
    list(resumed.laps())
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in resumed.state_dict().items())


def test_evaluation_takes_small_batches_of_large_outputs():
    def widen(logits, targets):
        return logits.square().mean((1, 2))

    workload = any_workloads.text(
        model=lambda: nn.Sequential(any_workloads.TinyLanguageModel(), nn.Linear(11, 1_000_000)), metric=widen
    )
    training = Training(TrainConfig(workload="x:y"), workload)
    training.evaluate(Split(workload.test.inputs[:2], workload.test.targets[:2]))
    assert training.evaluator.batch_size == 1
    small = Training(TrainConfig(workload="x:y"), any_workloads.text())
    small.evaluate(small.workload.test)
    assert small.evaluator.batch_size == 256


class NumberedExamples:
    """A billion examples, each made of its number when it is read."""

    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        numbers = torch.from_numpy(rng.standard_normal(4))
        return (numbers.float(), torch.tensor([index % 5, index % 3])), numbers[:1].float()


def test_a_billion_examples_train_and_resume_bit_equal_without_their_order_in_memory():
    config = TrainConfig(workload="x:y", batch_size=8, max_examples=320, eval_every=80, warmup_examples=80)
    workload = any_workloads.table(train=Split(NumberedExamples()))
    tracemalloc.start()
    whole = Training(config, workload)
    states = []
    for _ in whole.laps():
        state = {name: value.clone() for name, value in whole.state_dict().items()}
        states.append((state, list(whole.finished_laps)))
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    resumed = Training(config, workload)
    resumed.load_state_dict(*states[1])
    list(resumed.laps())
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in resumed.state_dict().items())
