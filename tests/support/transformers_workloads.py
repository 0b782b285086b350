"""Small models of transformers as workloads for tests; the package is imported when a model is built."""

from functools import partial

from torch import nn

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.text.hugging_face import NO_SPECIAL_TOKENS, HuggingFaceModel
from tests.support.any_workloads import VOCABULARY, text
from tests.support.sharded_workloads import GPT_CONTEXT


def build_llama() -> nn.Module:
    """Build a LLaMA of 2 layers with 4 heads, of which two share keys and values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    limits = {"num_hidden_layers": 2, "max_position_embeddings": GPT_CONTEXT, "vocab_size": VOCABULARY}
    return HuggingFaceModel(
        AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **sizes, **limits, **NO_SPECIAL_TOKENS))
    )


def build_gpt2(attn_pdrop: float) -> nn.Module:
    """Build a GPT-2 of 2 layers with 4 heads that drop some of what they read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": GPT_CONTEXT, "attn_pdrop": attn_pdrop}
    config = AutoConfig.for_model("gpt2", vocab_size=VOCABULARY, **sizes, **NO_SPECIAL_TOKENS)
    return HuggingFaceModel(AutoModelForCausalLM.from_config(config))


def llama(trial: TrainConfig) -> Workload:
    """Return sequences of tokens with a LLaMA."""
    return text(trial, name="llama", model=build_llama)


def gpt2(trial: TrainConfig) -> Workload:
    """Return sequences of tokens with a GPT-2 whose attention drops nothing."""
    return text(trial, name="gpt2", model=partial(build_gpt2, 0.0))


def gpt2_with_dropout(trial: TrainConfig) -> Workload:
    """Return sequences of tokens with a GPT-2 whose attention has dropout."""
    return text(trial, name="gpt2", model=partial(build_gpt2, 0.1))
