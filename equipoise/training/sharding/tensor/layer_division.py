"""How a layer is divided among workers: which parts of its weights each holds, and what each computes of it."""

from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.training.sharding.tensor.part_exchange import PartExchange
from equipoise.training.sharding.tensor_slice import TensorSlice

DivisionKind = Literal["input", "columns", "rows", "channels", "dropout"]


class LayerDivision(NamedTuple):
    """Layer of which each worker of a replica holds a part."""

    name: str
    kind: DivisionKind
    """columns of a Linear's output, rows of its input, output channels of a Conv2d, or units of a Dropout; `input` is a
    module without weights of its own, all of whose columns read the same input"""
    num_sections: int = 1
    """equal sections of the output, such as query, key and value, of each of which a worker holds a part"""
    is_transposed: bool = False
    """whether the weight is (input, output), the other way around from nn.Linear"""
    reads_shared_input: bool = False
    """whether the gradient of the input is summed for several layers at a time, by the `input` that they are in"""

    def find_slices(self, layer: nn.Module, part: int, num_parts: int) -> dict[str, TensorSlice]:
        """Return which part of each of a layer's divided weights a worker holds, by the weight's name in the layer."""
        output_dim = int(self.is_transposed)
        dims = {
            "columns": {"weight": output_dim, "bias": 0},
            "rows": {"weight": 1 - output_dim},
            "channels": {"weight": 0, "bias": 0},
        }
        own_dims = dims.get(self.kind, {})
        return {
            name: slice_sections(tuple(value.shape), own_dims[name], self.num_sections, part, num_parts)
            for name, value in layer.named_parameters(recurse=False)
            if name in own_dims
        }


def slice_sections(shape: tuple[int, ...], dim: int, num_sections: int, part: int, num_parts: int) -> TensorSlice:
    """Return the part of a tensor that has an equal share of each of its sections along a dimension."""
    section = shape[dim] // num_sections
    length = section // num_parts
    return TensorSlice(shape, dim, tuple((index * section + part * length, length) for index in range(num_sections)))


def divide_layer(layer: nn.Module, division: LayerDivision, exchange: PartExchange) -> dict[str, TensorSlice]:
    """Let a layer hold and compute its part alone; return the parts of its weights, by their names in the layer.

    The layer stays the same object, so that others find it where they found it.
    """
    slices = division.find_slices(layer, exchange.part, exchange.num_parts)
    for name, place in slices.items():
        whole = layer.get_parameter(name)
        part = place.cut(whole.detach()).clone()  # of its own memory, so that the whole is freed
        setattr(layer, name, nn.Parameter(part, requires_grad=whole.requires_grad))
    if division.kind == "input":
        layer.register_forward_pre_hook(partial(share_hidden_states, exchange), with_kwargs=True)
    elif division.kind == "columns":
        layer.forward = partial(compute_columns, layer, division, exchange)
    elif division.kind == "rows":
        layer.forward = partial(compute_rows, layer, division.is_transposed, exchange)
    elif division.kind == "channels":
        layer.forward = partial(compute_channels, layer, exchange)
    else:
        layer.forward = partial(drop_units, layer, exchange)
    return slices


def share_hidden_states(
    exchange: PartExchange, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a block of transformers, whose first is read by all parts."""
    if args:
        return (exchange.share_input(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": exchange.share_input(kwargs["hidden_states"])}


def compute_columns(layer: Any, division: LayerDivision, exchange: PartExchange, x: Tensor) -> Tensor:
    """Return this part's columns of a dense layer's output."""
    weight = layer.weight.T if division.is_transposed else layer.weight
    return F.linear(x if division.reads_shared_input else exchange.share_input(x), weight, layer.bias)


def compute_rows(layer: Any, is_transposed: bool, exchange: PartExchange, x: Tensor) -> Tensor:
    """Return the whole output of a dense layer, of which each part has some rows of the input."""
    output = exchange.sum_outputs(F.linear(x, layer.weight.T if is_transposed else layer.weight))
    return output if layer.bias is None else output + layer.bias.to(output.dtype)  # once, not once for each part


def compute_channels(layer: Any, exchange: PartExchange, x: Tensor) -> Tensor:
    """Return the whole output of a convolution, of which each part computes some channels."""
    output: Tensor = layer._conv_forward(exchange.share_input(x), layer.weight, layer.bias)
    return exchange.gather_channels(output)


def drop_units(layer: Any, exchange: PartExchange, x: Tensor) -> Tensor:
    """Drop the units of this part that one process would drop: it draws for all of them."""
    if not layer.training or layer.p == 0:
        return x
    width = x.shape[-1]
    with torch.no_grad():
        factors = F.dropout(x.new_ones(*x.shape[:-1], width * exchange.num_parts), layer.p)
    return x * factors.narrow(-1, exchange.part * width, width).clone()  # else autograd would keep those of all parts
