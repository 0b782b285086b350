"""A model as JSON: it computes what the model does, for any batch, and nothing else runs."""

import json

import pytest
import torch
from torch import nn

from equipoise.bundle.engines import InferenceModule
from equipoise.bundle.graph import collect_weights, export_model, load_program, serialize_graph
from equipoise.training.finetune import find_classifier_layer
from equipoise.workloads.models import model_factory

MODELS = ["lenet", "mobilenet_v3_small", "resnet18", "squeezenet1_1", "shufflenet_v2_x0_5"]


def served(name, channels=3, size=64):
    torch.manual_seed(0)
    network = model_factory(name, 10, channels, size)().eval()
    return InferenceModule(network, find_classifier_layer(network, 10), [0.5] * channels, [0.25] * channels).eval()


def pictures(count, channels=3, size=64):
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=torch.manual_seed(count))


@pytest.mark.parametrize("name", MODELS)
def test_a_program_computes_what_its_model_does_for_any_batch(name):
    network = served(name)
    found = export_model(network, pictures(2))
    again = load_program(json.loads(json.dumps(serialize_graph(found))), collect_weights(found))
    for count in (1, 3, 8):
        with torch.inference_mode():
            for ours, theirs in zip(again(pictures(count)), network(pictures(count)), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_features_are_what_the_classifier_sees():
    network = served("lenet", 1, 16)
    with torch.inference_mode():
        logits, features = network(pictures(5, 1, 16))
        torch.testing.assert_close(network.model.head(features), logits)


class Odd(nn.Module):
    def forward(self, images):
        return torch.ops.prims.cos(images.float()).flatten(1)


def test_an_operator_that_is_not_pytorchs_own_is_refused():
    with pytest.raises(ValueError, match="cannot store the model in a bundle: it uses"):
        serialize_graph(export_model(Odd(), torch.zeros(2, 1, 4, 4)))


INPUT = {"input": True}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([INPUT, {"do": "from_file.default", "take": ["/etc/passwd"], "named": {}}], "from_file.default' is not"),
        ([INPUT, {"do": "__import__.os", "take": [], "named": {}}], "is not allowed"),
        (
            [INPUT, {"do": "_local_scalar_dense.default", "take": [], "named": {}}],
            "is not allowed",
        ),
        ([INPUT, {"do": "no_such_operator.default", "take": [], "named": {}}], "is not allowed"),
        ([INPUT, {"do": "add.nothing", "take": [], "named": {}}], "program: AttributeError"),
        ([INPUT, {"do": "add.__class__", "take": [], "named": {}}], "there is no operator 'add.__class__'"),
        ([INPUT, {"do": "max_pool2d_with_indices_backward.default", "take": [], "named": {}}], "is not allowed"),
        ([INPUT, {"do": "empty.memory_format", "take": [[9]], "named": {}}], "is not allowed"),
        ([INPUT, {"output": [{"step": True}]}], "True is not the index of a step"),
        ([INPUT, {"output": [{"step": -1}]}], "uses a result that is not computed before it"),
        ([INPUT, INPUT, {"output": [{"step": 0}]}], "must have one input and end with an output"),
        ([], "must have one input and end with an output"),
        (
            [INPUT, {"do": "relu.default", "take": [{"step": 1}], "named": {}}, {"output": [{"step": 1}]}],
            "step 1 uses a result that is not computed",
        ),
        ([INPUT, {"do": "relu.default", "take": [{"dtype": "load"}], "named": {}}], "'load' is not a dtype"),
        ([INPUT, {"do": "relu.default", "take": [{"format": "float32"}], "named": {}}], "'float32' is not a format"),
        ([{"weight": "gone"}], "program: KeyError: 'gone'"),
        ([{}], "program: KeyError: 'do'"),
        (["relu"], "program: TypeError"),
        ([INPUT, {"output": 3}], "program: TypeError"),
    ],
)
def test_what_is_no_program_is_refused(steps, words):
    with pytest.raises(ValueError, match=words):
        load_program(steps, {})


def test_no_word_of_a_program_is_run_as_code(tmp_path):
    trap = f"inplace=open({str(tmp_path / 'there')!r}, 'w'), x"
    steps = [INPUT, {"do": "relu.default", "take": [{"step": 0}], "named": {trap: 1}}, {"output": [{"step": 1}]}]
    made = load_program(steps, {})
    with pytest.raises(RuntimeError):
        made(torch.zeros(1, 1, 2, 2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("do", "take", "words"),
    [
        ("mul", ["a", 1 << 30], "mul needs numbers"),
        ("mul", [[0], 1 << 30], "mul needs numbers"),
        ("mul", [1 << 39, 1 << 39], "computes a size above"),
        ("getitem", [3, 0], "getitem needs a list of results"),
    ],
)
def test_arithmetic_stays_with_sizes(do, take, words):
    steps = [INPUT, {"do": do, "take": take, "named": {}}, {"output": [{"step": 1}]}]
    with pytest.raises(ValueError, match=words):
        load_program(steps, {})(torch.zeros(1, 1, 2, 2))
