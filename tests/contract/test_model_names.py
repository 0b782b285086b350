"""A model is built by its name, for the channels and classes of a workload."""

from dataclasses import replace

import pytest
import torch
import torchvision
from torch import nn

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from equipoise.workloads.models import adapt_input_channels, model_factory
from equipoise.workloads.validation import validate_workload
from tests.support.errors import raises_code


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "googlenet"])
def test_torchvision_models_adapt_to_channels_and_classes(name):
    workload = load_workload(TrainConfig(workload="digits", model=name, image_size=64))
    assert workload.model().eval()(torch.zeros(2, 1, 64, 64)).shape == (2, 10)


def test_models_of_colour_images_are_those_of_torchvision_to_the_bit():
    build = model_factory("squeezenet1_1", 10, 3, 64)
    torch.manual_seed(4)
    weights = build().state_dict()
    torch.manual_seed(4)
    expected = torchvision.models.squeezenet1_1(num_classes=10).state_dict()
    assert weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)


def test_first_convolution_for_other_channels_differs_in_them_alone():
    for has_bias in (True, False):
        first = nn.Conv2d(3, 6, (5, 3), stride=(2, 1), padding=(1, 2), bias=has_bias)
        adapted = adapt_input_channels(nn.Sequential(first, nn.Conv2d(6, 3, 1)), 1)
        (output,) = {adapted[0](torch.zeros(1, 1, 9, 9)).shape, first(torch.zeros(1, 3, 9, 9)).shape}
        assert adapted[0].weight.shape == (6, 1, 5, 3) and output[1] == 6
        assert (adapted[0].bias is not None) == has_bias and adapted[1].in_channels == 6


def test_unknown_or_unsuitable_model_is_refused():
    with raises_code("model-unknown", "resnet19", "lenet, alexnet"):
        load_workload(TrainConfig(workload="digits", model="resnet19"))
    with raises_code("model-unknown", "'lennet'; did you mean lenet? choose one of: lenet, alexnet"):
        load_workload(TrainConfig(workload="digits", model="lennet"))
    with raises_code("model-invalid", "alexnet", "1x16x16"):
        load_workload(TrainConfig(workload="digits", model="alexnet"))
    with raises_code("model-invalid", 12, 8):
        load_workload(TrainConfig(workload="digits", image_size=8))
    assert load_workload(TrainConfig(workload="digits", image_size=12)).model()(torch.zeros(1, 1, 12, 12)).shape == (
        1,
        10,
    )


def test_model_in_place_of_a_function_that_builds_one_is_refused():
    workload = load_workload(TrainConfig(workload="digits"))
    with raises_code("workload-invalid", "its model is a LeNet", "lambda"):
        validate_workload(replace(workload, model=workload.model()), TrainConfig(workload="digits"))
