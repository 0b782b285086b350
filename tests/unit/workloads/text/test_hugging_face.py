"""Architectures of transformers as language models: they fit our tokens and windows, and read from left to right."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from equipoise.workloads.text.gpt import GPT
from equipoise.workloads.text.hugging_face import require_causal
from equipoise.workloads.text.models import language_model_factory
from tests.support.errors import raises_code

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: make test-frameworks"
)


class ReadsAllTokens(nn.Module):
    """Model whose scores of each position depend on all tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 10)

    def forward(self, tokens):
        scores = self.embedding(tokens)
        return scores + scores.mean(1, keepdim=True)


def test_model_that_reads_later_tokens_is_refused():
    with raises_code("model-invalid", "hf:all"):
        require_causal("hf:all", ReadsAllTokens(), context=8)
    require_causal("gpt", GPT(10, 8, 2, 16, 4), context=8)


@pytest.mark.skipif(find_spec("transformers") is not None, reason="transformers is installed here")
def test_missing_package_is_named():
    with raises_code("package-missing", "hf:gpt2", "pip install transformers"):
        language_model_factory("hf:gpt2", 10, 8)


@needs_transformers
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen3", "mistral", "opt"])
def test_architecture_takes_our_tokens_and_reads_from_left_to_right(architecture):
    model = language_model_factory(f"hf:{architecture}:2x64", vocabulary_size=79, context=64)()
    assert model(torch.zeros(3, 64, dtype=torch.int64)).shape == (3, 64, 79)


@needs_transformers
def test_our_gpt_computes_what_gpt2_of_transformers_computes():
    theirs = language_model_factory("hf:gpt2:2x64", vocabulary_size=79, context=64)().eval()
    ours = GPT(vocabulary_size=79, context=64, layers=2, width=64, heads=4)
    ours.load_state_dict(dict(convert_gpt2_weights(theirs.model.transformer)))
    assert sum(x.numel() for x in ours.parameters()) == sum(x.numel() for x in theirs.parameters())
    tokens = torch.randint(79, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # GPT-2 has the approximation of GELU by tanh
        torch.testing.assert_close(ours(tokens), theirs(tokens), atol=2e-4, rtol=1e-3)


def convert_gpt2_weights(gpt2):
    """Yield the weights of GPT-2 under our names; its matrices are transposed."""
    yield "token_embedding.weight", gpt2.wte.weight
    yield "position_embedding.weight", gpt2.wpe.weight
    for index, block in enumerate(gpt2.h):
        layers = {
            "attention_norm": block.ln_1,
            "attention.query_key_value": block.attn.c_attn,
            "attention.out": block.attn.c_proj,
            "mlp_norm": block.ln_2,
            "mlp.hidden": block.mlp.c_fc,
            "mlp.out": block.mlp.c_proj,
        }
        for name, layer in layers.items():
            yield f"blocks.{index}.{name}.weight", layer.weight.T if layer.weight.ndim == 2 else layer.weight
            yield f"blocks.{index}.{name}.bias", layer.bias
    yield "norm.weight", gpt2.ln_f.weight
    yield "norm.bias", gpt2.ln_f.bias


@needs_transformers
def test_folder_with_a_configuration_gives_the_architecture(tmp_path):
    from transformers import GPT2Config

    GPT2Config(n_layer=1, n_embd=32, n_head=2, n_positions=128, vocab_size=50_000).save_pretrained(tmp_path)
    model = language_model_factory(f"hf:{tmp_path}", vocabulary_size=79, context=64)()
    assert model.model.transformer.wte.weight.shape == (79, 32)
    assert model(torch.zeros(1, 64, dtype=torch.int64)).shape == (1, 64, 79)


@needs_transformers
@pytest.mark.parametrize(
    ("name", "code"), [("hf:nothing", "model-unknown"), ("hf:", "model-unknown"), ("hf:gpt2:2x66", "model-invalid")]
)
def test_names_that_give_no_model_are_refused(name, code):
    with raises_code(code, name):
        language_model_factory(name, 79, 64)


@needs_transformers
def test_architecture_that_is_no_language_model_is_refused():
    with raises_code("model-invalid", "hf:t5:2x64"):
        language_model_factory("hf:t5:2x64", 79, 64)()
