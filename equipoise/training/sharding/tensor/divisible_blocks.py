"""Layers of a model that workers can divide, found by its structure without running it.

These can be divided: two dense layers with nothing but elementwise functions between them, the blocks of language
models that are listed here by their class, and convolutions. Everything else stays whole on each worker.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from math import gcd
from typing import Any, NamedTuple

from torch import nn

from equipoise.training.sharding.tensor.layer_division import LayerDivision
from equipoise.workloads.text.gpt import CausalAttention, FeedForward

ELEMENTWISE = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
)
"""functions of single numbers without weights, which a part of the units can be computed of"""
CONV1D_CLASS = "transformers.pytorch_utils.Conv1D"
"""dense layer of GPT-2, whose weight is (input, output)"""


class DivisibleBlock(NamedTuple):
    """Layers that can only be divided together."""

    layers: tuple[LayerDivision, ...]
    width: int
    """number of units that are shared by workers"""
    unit: str
    """unit of the width, in the plural"""
    counters: tuple[str, ...] = ()
    """attributes of modules, by their names in the model, that count what each worker has a part of"""


def find_blocks(model: nn.Module) -> list[DivisibleBlock]:
    """Return all blocks of a model that could be divided among some number of workers; they may overlap."""
    plain_names = find_plain_layers(model)
    blocks: list[DivisibleBlock] = []
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if is_sequence(module):
            blocks += find_dense_pairs(list_steps(module, prefix))
        elif type(module) is nn.Conv2d and module.groups == 1:
            blocks.append(DivisibleBlock((LayerDivision(name, "channels"),), module.out_channels, "channels"))
        elif (divide := BLOCKS_BY_CLASS.get(qualified_name(type(module)))) and not is_changed(module):
            blocks += divide(module, prefix)
    return [
        block for block in blocks if all(layer.name in plain_names for layer in block.layers if layer.kind != "input")
    ]


def find_plain_layers(model: nn.Module) -> set[str]:
    """Return the names of layers that do what their class says, with weights that no other layer has too."""
    modules = Counter(map(id, dict(model.named_modules(remove_duplicate=False)).values()))
    weights = Counter(map(id, dict(model.named_parameters(remove_duplicate=False)).values()))

    def is_plain(module: nn.Module) -> bool:
        is_known = type(module) in (nn.Linear, nn.Conv2d, nn.Dropout) or qualified_name(type(module)) == CONV1D_CLASS
        is_shared = modules[id(module)] > 1 or any(weights[id(value)] > 1 for value in module.parameters())
        return is_known and not is_shared and not is_changed(module)

    return {name for name, module in model.named_modules() if is_plain(module)}


def is_changed(module: nn.Module) -> bool:
    """Return whether a module does more than its class: it has hooks, or a forward function of its own."""
    return bool(module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module))


def is_sequence(module: nn.Module) -> bool:
    """Return whether a module computes its children one after another and nothing else."""
    return type(module).forward is nn.Sequential.forward and not is_changed(module)


def list_steps(sequence: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """List the modules that a sequence computes one after another by name, with those of the sequences in it."""
    steps: list[tuple[str, nn.Module]] = []
    for name, module in sequence._modules.items():  # `named_children` leaves out a module's second turn
        if module is not None:
            path = f"{prefix}{name}"
            steps += list_steps(module, f"{path}.") if is_sequence(module) else [(path, module)]
    return steps


def find_dense_pairs(steps: list[tuple[str, nn.Module]]) -> Iterator[DivisibleBlock]:
    """Yield the pairs of dense layers with only elementwise functions between them, and the dropout there."""
    first: nn.Linear | None = None
    layers: list[LayerDivision] = []
    for name, module in steps:
        if type(module) is nn.Linear:
            if first is not None:
                yield DivisibleBlock((*layers, LayerDivision(name, "rows")), first.out_features, "units")
            first, layers = module, [LayerDivision(name, "columns")]
        elif type(module) is nn.Dropout:
            layers.append(LayerDivision(name, "dropout"))
        elif type(module) not in ELEMENTWISE or is_changed(module):
            first = None


def divide_feed_forward(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the hidden layer of a block of our GPT."""
    layers = LayerDivision(f"{prefix}hidden", "columns"), LayerDivision(f"{prefix}out", "rows")
    yield DivisibleBlock(layers, module.hidden.out_features, "units")


def divide_attention(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the heads of a block of our GPT."""
    layers = (
        LayerDivision(f"{prefix}query_key_value", "columns", num_sections=3),
        LayerDivision(f"{prefix}out", "rows"),
    )
    yield DivisibleBlock(layers, module.heads, "heads", (f"{prefix}heads",))


def divide_llama_mlp(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the hidden layer of a block of LLaMA, which is a product of two."""
    layers = *list_shared_columns(prefix, "gate_proj", "up_proj"), LayerDivision(f"{prefix}down_proj", "rows")
    yield DivisibleBlock(layers, module.gate_proj.out_features, "units")


def divide_llama_attention(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the heads of a block of LLaMA, unless it drops some of what they read: each head draws for itself."""
    if not module.attention_dropout:
        layers = *list_shared_columns(prefix, "q_proj", "k_proj", "v_proj"), LayerDivision(f"{prefix}o_proj", "rows")
        heads = gcd(module.q_proj.out_features, module.k_proj.out_features) // module.head_dim
        yield DivisibleBlock(layers, heads, "heads")


def list_shared_columns(prefix: str, *names: str) -> list[LayerDivision]:
    """List the layers of a block that all read its input."""
    columns = [LayerDivision(f"{prefix}{name}", "columns", reads_shared_input=True) for name in names]
    return [LayerDivision(prefix.removesuffix("."), "input"), *columns]


def divide_gpt2_mlp(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the hidden layer of a block of GPT-2."""
    layers = (
        LayerDivision(f"{prefix}c_fc", "columns", is_transposed=True),
        LayerDivision(f"{prefix}c_proj", "rows", is_transposed=True),
    )
    yield DivisibleBlock(layers, module.c_fc.weight.shape[1], "units")


def divide_gpt2_attention(module: Any, prefix: str) -> Iterator[DivisibleBlock]:
    """Divide the heads of a block of GPT-2, unless it drops some of what they read: each head draws for itself."""
    if not module.attn_dropout.p and not module.is_cross_attention:
        layers = (
            LayerDivision(f"{prefix}c_attn", "columns", num_sections=3, is_transposed=True),
            LayerDivision(f"{prefix}c_proj", "rows", is_transposed=True),
        )
        counters = f"{prefix}split_size", f"{prefix}num_heads"
        yield DivisibleBlock(layers, module.num_heads, "heads", counters)


def qualified_name(kind: type) -> str:
    """Return the name of a class with its module's, by which classes of packages are known without an import."""
    return f"{kind.__module__}.{kind.__qualname__}"


BLOCKS_BY_CLASS: dict[str, Callable[[Any, str], Iterator[DivisibleBlock]]] = {
    qualified_name(FeedForward): divide_feed_forward,
    qualified_name(CausalAttention): divide_attention,
    "transformers.models.llama.modeling_llama.LlamaMLP": divide_llama_mlp,
    "transformers.models.llama.modeling_llama.LlamaAttention": divide_llama_attention,
    "transformers.models.gpt2.modeling_gpt2.GPT2MLP": divide_gpt2_mlp,
    "transformers.models.gpt2.modeling_gpt2.GPT2Attention": divide_gpt2_attention,
}
"""how blocks of language models are divided, by the names of their classes"""
