"""Adapters leave a model as it is until they learn, learn alone, and disappear into its weights."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.training.initialization.lora import add_adapters, list_adaptable_layers, merge_adapters
from equipoise.training.loop import Training
from equipoise.workloads.text.gpt import GPT
from jobs.ray_train.checkpoints import require_matching_weights
from tests.support.errors import raises_code
from tests.support.sequence_models import Gpt

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed: make test-frameworks")
TOKENS = torch.arange(16).view(2, 8)


def build_gpt():
    torch.manual_seed(0)
    return GPT(vocabulary_size=23, context=8, layers=1, width=16, heads=2)


@needs_peft
def test_adapters_learn_alone_and_merge_into_the_weights():
    model = build_gpt()
    names, before = list(model.state_dict()), {name: value.clone() for name, value in model.state_dict().items()}
    expected = model(TOKENS)
    add_adapters(model, rank=2, trained_names=["position_embedding.weight"])
    torch.testing.assert_close(model(TOKENS), expected)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert [name for name, _ in trained if ".lora_" not in name] == ["position_embedding.weight"]
    assert len(trained) == 1 + 2 * len(list_adaptable_layers(build_gpt()))
    with torch.no_grad():
        for name, parameter in trained:
            if ".lora_" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    adapted = model(TOKENS)
    merge_adapters(model)
    torch.testing.assert_close(model(TOKENS), adapted, rtol=1e-4, atol=1e-5)
    assert list(model.state_dict()) == names
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"{name}.weight" for name in list_adaptable_layers(build_gpt())}


def test_dense_layers_of_their_own_weights_are_adapted():
    assert "head" not in list_adaptable_layers(Gpt())  # tied to the embedding of tokens
    assert list_adaptable_layers(nn.Sequential(nn.Linear(2, 3), nn.Embedding(3, 2), nn.Linear(3, 1))) == ["0", "2"]


@needs_peft
def test_model_without_dense_layers_is_refused():
    with raises_code("model-invalid", "--lora-rank"):
        add_adapters(nn.Conv2d(1, 1, 3), rank=2)


@pytest.mark.skipif(find_spec("peft") is not None, reason="peft is installed here")
def test_missing_peft_is_named():
    with raises_code("package-missing", "pip install peft"):
        add_adapters(build_gpt(), rank=2)


@pytest.mark.parametrize("options", [{}, {"init_from": "runs/x", "freeze_stages": 1}])
def test_rank_without_pretrained_weights_or_with_frozen_stages_is_refused(options):
    with raises_code("option-conflict", "--lora-rank"):
        TrainConfig(workload="text", lora_rank=4, **options)


def test_adapters_of_a_classifier_are_refused():
    with raises_code("option-conflict", "--lora-rank", "digits"):
        Training(TrainConfig(workload="digits", lora_rank=4, init_from="runs/x"))


@pytest.fixture
def lora_config(tmp_path):
    """Options of a run with adapters, from a GPT-2 with as many tokens as the text has characters and one."""
    from transformers import GPT2Config, GPT2LMHeadModel

    text = tmp_path / "text.txt"
    text.write_text("abc de " * 400)
    options = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 7}
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=64, **options))
    model.save_pretrained(tmp_path / "gpt2")
    config = TrainConfig(
        workload="text", data=str(text), init_from=str(tmp_path / "gpt2"), lora_rank=2, batch_size=4, max_examples=32
    )
    return replace(config, eval_every=8, target=0.0)


@needs_peft
def test_interrupted_run_with_adapters_takes_the_steps_of_a_whole_one(lora_config):
    whole, interrupted = Training(lora_config), Training(lora_config)
    losses = [lap.loss for lap in whole.laps()]
    first = next(interrupted.laps())
    resumed = Training(lora_config)
    resumed.load_state_dict(interrupted.state_dict(), [first])
    assert [first.loss, *(lap.loss for lap in resumed.laps())] == losses
    plain_names = set(resumed.workload.model().state_dict())
    assert set(resumed.model.state_dict()) != plain_names
    metric = resumed.evaluate(resumed.workload.test)
    resumed.load_kept_weights()
    assert set(resumed.model.state_dict()) == plain_names
    assert resumed.evaluate(resumed.workload.test) == pytest.approx(metric, abs=1e-5)


@needs_peft
def test_checkpoint_with_adapters_fits_the_run_that_wrote_it(lora_config, tmp_path):
    training = Training(lora_config)
    save_file(training.state_dict(), tmp_path / "state.safetensors")
    require_matching_weights(tmp_path, build_initial_model(lora_config, training.workload).model)
    with raises_code("run-mismatch", "lora_A"):
        other = build_initial_model(replace(lora_config, lora_rank=3), training.workload).model
        require_matching_weights(tmp_path, other)
