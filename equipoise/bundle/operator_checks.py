"""Operators whose kernels read past the end of a tensor that is too small, with the checks that they lack.

PyTorch 2.14 on a CPU: oneDNN's LSTM takes the sizes of its weights from the input and the hidden state, and the fused
attention takes the length of the values from the keys. A program is data of somebody else, so both are checked here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from equipoise.errors import EquipoiseError


def run_attention(query: Tensor, key: Tensor, value: Tensor, *options: Any, **named_options: Any) -> Any:
    """Return the scaled dot-product attention; refuse keys and values of different lengths."""
    if min(query.ndim, key.ndim, value.ndim) < 2 or key.shape[-2] != value.shape[-2]:
        raise EquipoiseError(
            "bundle-invalid",
            "cannot run the bundle's program: an attention has keys and values of different lengths",
        )
    return torch.ops.aten.scaled_dot_product_attention.default(query, key, value, *options, **named_options)


def run_lstm(
    sequence: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    is_bidirectional: bool,
    is_batch_first: bool,
    /,
) -> Any:
    """Return the output and the last states of an LSTM; refuse weights and states of sizes that do not fit it."""
    directions = 2 if is_bidirectional else 1
    tensors = [sequence, *states, *weights]
    is_sound = len(states) == 2 and all(tensor.ndim == 3 for tensor in [sequence, *states])
    is_sound = is_sound and len(weights) == layers * directions * (4 if has_biases else 2)
    if is_sound:
        batch, hidden = sequence.shape[0 if is_batch_first else 1], states[1].shape[2]
        shapes = list_lstm_weight_shapes(sequence.shape[2], hidden, layers, directions, has_biases)
        is_sound = (
            all(tuple(state.shape) == (layers * directions, batch, hidden) for state in states)
            and [tuple(weight.shape) for weight in weights] == shapes
            and all(tensor.dtype == sequence.dtype and tensor.device == sequence.device for tensor in tensors)
        )
    if not is_sound:
        raise EquipoiseError(
            "bundle-invalid",
            "cannot run the bundle's program: an LSTM has weights or states of types or sizes that do not fit it",
        )
    return torch.ops.aten.lstm.input(
        sequence, states, weights, has_biases, layers, dropout, train, is_bidirectional, is_batch_first
    )


def list_lstm_weight_shapes(
    features: int, hidden: int, layers: int, directions: int, has_biases: bool
) -> list[tuple[int, ...]]:
    """Return the shapes of an LSTM's weights without projections, in the order of `torch.nn.LSTM`."""
    biases: list[tuple[int, ...]] = [(4 * hidden,)] * 2 if has_biases else []
    return [
        shape
        for layer in range(layers)
        for _ in range(directions)
        for shape in [(4 * hidden, hidden * directions if layer else features), (4 * hidden, hidden), *biases]
    ]


CHECKED_OPERATORS: dict[str, Callable[..., Any]] = {
    "lstm.input": run_lstm,
    "scaled_dot_product_attention.default": run_attention,
}
"""functions that check the arguments of an operator and run it, by NAME.OVERLOAD"""
