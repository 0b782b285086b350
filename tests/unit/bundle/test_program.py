"""Programs of text and table models compute what their models compute, for any batch size and length."""

import pytest
import torch
from torch import nn

from equipoise.bundle.graph import collect_weights, export_model, serialize_graph
from equipoise.bundle.program import load_program
from tests.support.errors import raises_code
from tests.support.sequence_models import (
    CONTEXT,
    Gpt,
    MaskedAttention,
    RecurrentModel,
    TableModel,
    build_model,
    draw_rows,
    draw_tokens,
    publish_and_load,
)

SEQUENCE_MODELS = {
    "gpt": (Gpt,),
    "masked attention": (MaskedAttention,),
    **{kind: (RecurrentModel, kind) for kind in ("LSTM", "GRU", "RNN")},
}


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_sequences_may_have_any_length(name):
    model = build_model(*SEQUENCE_MODELS[name])
    program = publish_and_load(model, draw_tokens(2, 7))
    for batch, length in [(2, 7), (1, 1), (3, 2), (5, CONTEXT)]:
        tokens = draw_tokens(batch, length)
        with torch.inference_mode():
            (actual,), expected = program(tokens), model(tokens)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_shared_and_unused_weights_are_stored_once():
    model = build_model(Gpt)
    model.unused = nn.Linear(300, 300)
    weights = collect_weights(export_model(model, draw_tokens(2, 7)))
    assert sum(name in weights for name in ("tokens.weight", "head.weight")) == 1
    assert not [name for name in weights if name.startswith("unused")]
    used = {id(tensor): tensor.numel() for name, tensor in model.named_parameters() if not name.startswith("unused")}
    assert sum(tensor.numel() for tensor in weights.values()) == sum(used.values())


def test_dictionary_of_outputs_and_keyword_inputs_keep_their_names():
    model = build_model(TableModel)
    numbers, categories = draw_rows(3)
    program = publish_and_load(model, numbers, {"categories": categories})
    assert [value.key for value in program.inputs] == [0, "categories"]
    for count in (1, 3, 8):
        numbers, categories = draw_rows(count)
        with torch.inference_mode():
            actual, expected = program(numbers, categories=categories), model(numbers, categories=categories)
        assert actual.keys() == expected.keys()
        torch.testing.assert_close(actual, expected)


class ScaledSum(nn.Module):
    def forward(self, first, second, double=False):
        return (first + second) * (2 if double else 1), [first, second]


def test_option_of_the_model_is_kept_and_no_input():
    program = publish_and_load(ScaledSum(), (torch.ones(2, 3), torch.ones(2, 3)), {"double": True})
    doubled, *inputs = program(torch.ones(4, 3), torch.full((4, 3), 2.0))
    torch.testing.assert_close(doubled, torch.full((4, 3), 6.0))
    assert [value.key for value in program.inputs] == [0, 1] and [float(value[0, 0]) for value in inputs] == [1, 2]


class PairSum(nn.Module):
    def forward(self, pair):
        return pair[0] + pair[1]


def test_model_that_takes_a_list_is_refused():
    exported = torch.export.export(PairSum(), ([torch.ones(2, 3), torch.ones(2, 3)],))
    with raises_code("export-failed"):
        serialize_graph(exported)


class StepByStep(nn.Module):
    """Model whose operations are those of one length: it adds up the elements one by one."""

    def forward(self, tokens):
        total = torch.zeros(tokens.shape[0])
        for column in tokens.unbind(1):
            total = total + column
        return total


def test_length_that_the_operations_depend_on_is_fixed():
    program = publish_and_load(StepByStep(), draw_tokens(2, 5))
    tokens = draw_tokens(4, 5)
    torch.testing.assert_close(program(tokens)[0], tokens.sum(1).float())
    for length in (4, 6):
        with raises_code("inputs-invalid", "(any, 5)"):
            program(draw_tokens(4, length))


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((), {}),
        ((draw_tokens(2, 3), draw_tokens(2, 3)), {}),
        ((), {"tokens": draw_tokens(2, 3)}),
        ((draw_tokens(2, 3).int(),), {}),
        ((draw_tokens(2, 3)[0],), {}),
        ((draw_tokens(2, CONTEXT + 1),), {}),
        (([[1, 2, 3]],), {}),
    ],
)
def test_other_inputs_are_refused(arguments, keywords):
    program = publish_and_load(build_model(MaskedAttention), draw_tokens(2, 7))
    with raises_code("inputs-invalid"):
        program(*arguments, **keywords)


def test_program_of_the_first_format_takes_its_only_input_as_it_is():
    steps = [{"input": True}, {"do": "relu.default", "take": [{"step": 0}], "named": {}}, {"output": [{"step": 1}]}]
    program = load_program(steps, {})
    for values in (torch.tensor([-1.0, 2.0]), torch.tensor([[-3]])):
        torch.testing.assert_close(program(values), (values.clamp(min=0),))


class UnlistedOperators(nn.Module):
    def forward(self, values):
        return torch.linalg.inv(values) + torch.histc(values, 3)


def test_refused_operators_are_all_named():
    exported = export_model(UnlistedOperators(), torch.eye(3).repeat(2, 1, 1))
    with raises_code("export-failed", "aten.linalg_inv.default", "aten.histc.default"):
        serialize_graph(exported)


@pytest.mark.parametrize("name", ["lstm.data", "gru.data", "__import__.os", "__and_.Tensor"])
def test_other_overloads_and_names_are_refused(name):
    steps = [{"input": True}, {"do": name, "take": [], "named": {}}, {"output": [{"step": 0}]}]
    with raises_code("bundle-invalid", name):
        load_program(steps, {})


def test_special_numbers_are_kept():
    steps = [
        {"input": True},
        {"do": "clamp.default", "take": [{"step": 0}, {"number": "-inf"}, {"number": "inf"}], "named": {}},
        {"output": [{"step": 1}, {"number": "nan"}]},
    ]
    clamped, missing = load_program(steps, {})(torch.tensor([-1e38, 1e38]))
    assert clamped.tolist() == torch.tensor([-1e38, 1e38]).tolist() and missing != missing
    with raises_code("bundle-invalid"):
        load_program([{"input": True}, {"output": [{"number": "1e999"}]}], {})
