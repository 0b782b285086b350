"""Operators whose kernels do not check their arguments run only on those that fit."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.bundle.operator_checks import run_attention, run_lstm
from tests.support.errors import raises_code

BATCH, LENGTH, FEATURES, HIDDEN = 3, 4, 6, 5


def build_lstm_arguments(bias=True, bidirectional=False, batch_first=True, layers=2):
    """Return an LSTM, a sequence and the arguments of its operator."""
    torch.manual_seed(0)
    lstm = (
        nn.LSTM(FEATURES, HIDDEN, layers, bias, batch_first, bidirectional=bidirectional).eval().requires_grad_(False)
    )
    sequence = torch.randn(BATCH, LENGTH, FEATURES) if batch_first else torch.randn(LENGTH, BATCH, FEATURES)
    states = [torch.randn(layers * (2 if bidirectional else 1), BATCH, HIDDEN) for _ in range(2)]
    weights = [*lstm.parameters()]
    return lstm, [sequence, states, weights, bias, layers, 0.0, False, bidirectional, batch_first]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_lstm_of_any_kind_runs(bias, bidirectional, batch_first):
    lstm, arguments = build_lstm_arguments(bias, bidirectional, batch_first)
    output, (hidden, cell) = lstm(arguments[0], tuple(arguments[1]))
    torch.testing.assert_close(run_lstm(*arguments), (output, hidden, cell))


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (0, lambda sequence: torch.randn(BATCH, LENGTH, FEATURES + 1)),
        (0, lambda sequence: sequence[0]),
        (0, lambda sequence: torch.randn(BATCH + 1, LENGTH, FEATURES)),
        (0, lambda sequence: sequence.double()),
        (1, lambda states: states[:1]),
        (1, lambda states: [states[0], torch.randn(2, BATCH, HIDDEN + 1)]),
        (1, lambda states: [state[:1] for state in states]),
        (2, lambda weights: [weights[0][:4], *weights[1:]]),
        (2, lambda weights: [*weights[:2], weights[2][:1], *weights[3:]]),
        (2, lambda weights: weights[:4]),
        (2, lambda weights: [weight.half() for weight in weights]),
        (3, lambda has_biases: False),
        (4, lambda layers: 1 << 60),
        (4, lambda layers: -1),
        (7, lambda is_bidirectional: True),
        (8, lambda is_batch_first: False),
    ],
)
def test_lstm_with_arguments_that_do_not_fit_is_refused(position, change):
    _, arguments = build_lstm_arguments()
    arguments[position] = change(arguments[position])
    with raises_code("bundle-invalid"):
        run_lstm(*arguments)


def test_attention_runs_with_its_options():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 7, 4)
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.randn(7, 7)}, {"scale": 0.3}):
        expected = F.scaled_dot_product_attention(query, key, value, **options)
        torch.testing.assert_close(run_attention(query, key, value, **options), expected)
    plain = (query[0, 0], key[0, 0], value[0, 0])  # without batch and heads
    torch.testing.assert_close(run_attention(*plain), F.scaled_dot_product_attention(*plain))
    few_heads = (key[:, :1], value[:, :1])
    expected = F.scaled_dot_product_attention(query, *few_heads, enable_gqa=True)
    torch.testing.assert_close(run_attention(query, *few_heads, enable_gqa=True), expected)


@pytest.mark.parametrize("shape", [(2, 2, 1, 4), (2, 2, 8, 4), (4,)])
def test_attention_over_values_of_another_length_is_refused(shape):
    with raises_code("bundle-invalid"):
        run_attention(torch.randn(2, 2, 7, 4), torch.randn(2, 2, 7, 4), torch.randn(shape))
