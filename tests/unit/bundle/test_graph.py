"""A model stored as JSON computes the same for any batch size, and can run no other code."""

import json

import pytest
import torch
from torch import nn

from equipoise.bundle.graph import (
    collect_weights,
    export_model,
    find_size_bounds,
    serialize_graph,
    shorten_sequence,
)
from equipoise.bundle.kinds.inference_module import InferenceModule
from equipoise.bundle.program import load_program
from equipoise.training.finetune import find_classifier_layer
from equipoise.workloads.models import model_factory
from tests.support.errors import raises_code

MODEL_NAMES = ["lenet", "mobilenet_v3_small", "resnet18", "squeezenet1_1", "shufflenet_v2_x0_5"]


def build_inference_module(name, channels=3, size=64):
    torch.manual_seed(0)
    network = model_factory(name, 10, channels, size)().eval()
    return InferenceModule(network, find_classifier_layer(network, 10), [0.5] * channels, [0.25] * channels).eval()


def generate_images(count, channels=3, size=64):
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=torch.manual_seed(count))


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_loaded_program_matches_its_model_for_any_batch_size(name):
    module = build_inference_module(name)
    exported = export_model(module, generate_images(2))
    program = load_program(json.loads(json.dumps(serialize_graph(exported))), collect_weights(exported))
    for count in (1, 3, 8):
        with torch.inference_mode():
            for actual, expected in zip(program(generate_images(count)), module(generate_images(count)), strict=True):
                torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_features_are_the_input_of_the_classifier():
    module = build_inference_module("lenet", 1, 16)
    with torch.inference_mode():
        logits, features = module(generate_images(5, 1, 16))
        torch.testing.assert_close(module.model.head(features), logits)


class UnsupportedModel(nn.Module):
    def forward(self, images):
        return torch.ops.prims.cos(images.float()).flatten(1)


def test_operator_outside_aten_is_refused():
    with raises_code("export-failed"):
        serialize_graph(export_model(UnsupportedModel(), torch.zeros(2, 1, 4, 4)))


INPUT_STEP = {"input": True}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([INPUT_STEP, {"do": "from_file.default", "take": ["/etc/passwd"], "named": {}}], "from_file.default' is not"),
        ([INPUT_STEP, {"do": "__import__.os", "take": [], "named": {}}], "is not allowed"),
        (
            [INPUT_STEP, {"do": "_local_scalar_dense.default", "take": [], "named": {}}],
            "is not allowed",
        ),
        ([INPUT_STEP, {"do": "no_such_operator.default", "take": [], "named": {}}], "is not allowed"),
        ([INPUT_STEP, {"do": "add.nothing", "take": [], "named": {}}], "program: AttributeError"),
        ([INPUT_STEP, {"do": "add.__class__", "take": [], "named": {}}], "there is no operator 'add.__class__'"),
        ([INPUT_STEP, {"do": "max_pool2d_with_indices_backward.default", "take": [], "named": {}}], "is not allowed"),
        ([INPUT_STEP, {"do": "empty.memory_format", "take": [[9]], "named": {}}], "is not allowed"),
        ([INPUT_STEP, {"output": [{"step": True}]}], "True is not the index of a step"),
        ([INPUT_STEP, {"output": [{"step": -1}]}], "uses a result that is not computed before it"),
        ([INPUT_STEP, INPUT_STEP, {"output": [{"step": 0}]}], "must have one input and end with an output"),
        ([], "must have one input and end with an output"),
        (
            [INPUT_STEP, {"do": "relu.default", "take": [{"step": 1}], "named": {}}, {"output": [{"step": 1}]}],
            "step 1 uses a result that is not computed",
        ),
        ([INPUT_STEP, {"do": "relu.default", "take": [{"dtype": "load"}], "named": {}}], "'load' is not a dtype"),
        (
            [INPUT_STEP, {"do": "relu.default", "take": [{"format": "float32"}], "named": {}}],
            "'float32' is not a format",
        ),
        ([{"weight": "gone"}], "program: KeyError: 'gone'"),
        ([{}], "program: KeyError: 'do'"),
        (["relu"], "program: TypeError"),
        ([INPUT_STEP, {"output": 3}], "program: TypeError"),
    ],
)
def test_invalid_program_is_refused(steps, message):
    with raises_code("bundle-invalid", message):
        load_program(steps, {})


def test_argument_names_are_not_run_as_code(tmp_path):
    malicious_name = f"inplace=open({str(tmp_path / 'there')!r}, 'w'), x"
    steps = [
        INPUT_STEP,
        {"do": "relu.default", "take": [{"step": 0}], "named": {malicious_name: 1}},
        {"output": [{"step": 1}]},
    ]
    program = load_program(steps, {})
    with pytest.raises(RuntimeError):
        program(torch.zeros(1, 1, 2, 2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("do", "take", "message"),
    [
        ("mul", ["a", 1 << 30], "mul needs numbers"),
        ("mul", [[0], 1 << 30], "mul needs numbers"),
        ("mul", [1 << 39, 1 << 39], "computes a size above"),
        ("getitem", [3, 0], "getitem needs a list of results"),
    ],
)
def test_arithmetic_is_limited_to_sizes(do, take, message):
    steps = [INPUT_STEP, {"do": do, "take": take, "named": {}}, {"output": [{"step": 1}]}]
    with raises_code("bundle-invalid", message):
        load_program(steps, {})(torch.zeros(1, 1, 2, 2))


def test_sequences_of_three_or_more_are_shortened():
    for shape, shorter in (((2, 3, 4), (2, 2, 4)), ((2, 2, 4), (2, 2, 4)), ((2, 3), (2, 3))):  # one would be fixed
        assert shorten_sequence(torch.zeros(shape)).shape == shorter
    tokens = torch.arange(6).view(2, 3)
    assert torch.equal(shorten_sequence(tokens), tokens[:, :2]) and shorten_sequence(None) is None


@pytest.mark.parametrize(("least", "bound"), [(2, 0), (3, 3), (4, 4)])
def test_least_size_of_a_variable_dimension_is_bounded_from_three_on(least, bound):
    rows = torch.export.Dim("rows", min=least, max=64)
    program = torch.export.export(nn.Linear(3, 2), (torch.zeros(5, 3),), dynamic_shapes=({0: rows},))
    (inputs,) = (node.meta["val"] for node in program.graph.nodes if node.name == "input")
    assert [find_size_bounds(size, program) for size in inputs.shape] == [(bound, 64), (3, 3)]


@pytest.mark.parametrize(("do", "take"), [("mul", [1 << 20, 1 << 20]), ("neg", [1 << 40]), ("floordiv", [1 << 41, 2])])
def test_sizes_up_to_a_trillion_may_be_computed(do, take):
    steps = [INPUT_STEP, {"do": do, "take": take, "named": {}}, {"output": [{"step": 1}]}]
    (size,) = load_program(steps, {})(torch.zeros(1, 1, 2, 2))
    assert abs(size) == 1 << 40
    steps[1]["take"] = [take[0] + (1 << 21), *take[1:]]
    with raises_code("bundle-invalid", "computes a size above"):
        load_program(steps, {})(torch.zeros(1, 1, 2, 2))
