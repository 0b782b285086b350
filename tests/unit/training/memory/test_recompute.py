"""A run that computes blocks again in the backward pass takes the steps of one that keeps everything, to the bit."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.memory.recompute import list_blocks, recompute_blocks
from equipoise.workloads.text.gpt import GPT, TransformerBlock
from tests.support.block_models import residual, transformer
from tests.support.errors import raises_code

WORKLOADS = {"residual": residual, "transformer": transformer}
CONFIG = TrainConfig(workload="tests.support.block_models:residual", batch_size=4, max_examples=64, noise_scale_every=2)


def train(workload, **options):
    training = Training(replace(CONFIG, **options), workload)
    laps = list(training.laps())
    return training.state_dict(), [(lap.loss, lap.metric) for lap in laps]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_steps_are_those_of_a_run_that_keeps_everything(name, precision):
    expected, expected_laps = train(WORKLOADS[name](), precision=precision)
    state, laps = train(WORKLOADS[name](), precision=precision, recompute=True)
    assert laps == expected_laps and state.keys() == expected.keys()
    assert [key for key, value in state.items() if not torch.equal(value, expected[key])] == []


def test_accumulation_and_frozen_stages_take_the_same_steps():
    options = {"grad_accumulation": 2, "freeze_stages": 2}  # the second stage is a block
    expected, _ = train(residual(), **options)
    state, _ = train(residual(), recompute=True, **options)
    assert all(torch.equal(value, expected[key]) for key, value in state.items())


def test_adapters_learn_the_same(tmp_path):
    pytest.importorskip("peft")
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    options = TrainConfig(workload="text", data=str(text), model="gpt:2x16", batch_size=4, max_examples=16)
    base = Training(options)
    list(base.laps())
    from safetensors.torch import save_file

    folder = tmp_path / "run"
    folder.mkdir()
    save_file({k: v.clone().contiguous() for k, v in base.sharded.list_weights().items()}, folder / "model.safetensors")
    states = []
    for recompute in (False, True):
        training = Training(replace(options, init_from=str(folder), lora_rank=2, recompute=recompute))
        list(training.laps())
        states.append(training.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def saved_bytes(model, inputs):
    """Bytes that a forward pass keeps for the backward pass, parameters aside."""
    storages = {}

    def note(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = model(inputs)
    for parameter in model.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    return outputs, sum(storages.values())


def test_blocks_keep_their_names_and_identity_and_less_memory():
    model = GPT(11, 8, layers=4, width=16, heads=2)
    tokens = torch.randint(0, 11, (4, 8))
    modules, state = dict(model.named_modules()), model.state_dict()
    outputs, kept_bytes = saved_bytes(model, tokens)
    recompute_blocks(CONFIG, model)
    again, fewer_bytes = saved_bytes(model, tokens)
    assert all(module is modules[name] for name, module in model.named_modules())
    assert model.state_dict().keys() == state.keys() and isinstance(model.blocks[0], TransformerBlock)
    assert torch.equal(outputs, again) and fewer_bytes < kept_bytes / 2


def test_blocks_are_the_largest_members_of_containers():
    nested = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ModuleList([GPT(5, 4, 2, 4, 1)]))
    assert list_blocks(nested) == [nested[0], nested[1][0]]
    model = GPT(5, 4, 3, 4, 1)
    assert list_blocks(model) == list(model.blocks)
    assert list_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == []


def test_models_without_blocks_and_compiled_ones_are_refused():
    with raises_code("model-invalid"):
        Training(TrainConfig(workload="digits", recompute=True))
    with raises_code("option-conflict"):
        recompute_blocks(replace(CONFIG, compile=True), residual().model())
