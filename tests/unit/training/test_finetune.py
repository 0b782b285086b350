"""Tests of which pretrained weights a model reuses, and which of its parts learn how fast."""

import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.finetune import (
    PretrainedWeights,
    build_lr_scales,
    find_classifier_layer,
    freeze_stages,
    initialize_from_pretrained,
    list_stages,
    load_pretrained,
)
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.training.loop import Training
from equipoise.training.torch_state import collect_weights
from equipoise.workloads import load_workload
from equipoise.workloads.detection.center_model import PRIOR, CenterModel
from equipoise.workloads.models import model_factory
from tests.support import any_workloads
from tests.support.boxed_shelves import small_shelf
from tests.support.errors import raises_code

DIGITS = TrainConfig(workload="digits", batch_size=32, warmup=0)
CLASSES = [str(digit) for digit in range(10)]


def build_lenet(seed, classes=10, channels=1):
    torch.manual_seed(seed)
    return model_factory("lenet", classes, channels, 16)()


def save_weights(folder, model, classes):
    folder.mkdir(exist_ok=True)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(classes)})
    return str(folder)


def test_body_is_reused_and_head_rows_are_matched_by_class_name():
    pretrained, model = build_lenet(1), build_lenet(2)
    initial_head = model.head.weight.detach().clone()
    names = ["eight", "0", "nine", "1", *"abcdef"]
    reused_classes = initialize_from_pretrained(
        model, PretrainedWeights("there", pretrained.state_dict(), names), CLASSES, reuse_head=True
    )
    assert reused_classes == ["0", "1"]
    for name, value in model.body.state_dict().items():
        assert torch.equal(value, pretrained.body.state_dict()[name])
    assert torch.equal(model.head.weight[2:], initial_head[2:])


def test_reused_rows_beside_new_classes_are_centered_and_scaled_down():
    pretrained, model = build_lenet(1), build_lenet(2)
    with torch.no_grad():
        pretrained.head.weight.mul_(7).add_(0.3)  # as after long training: large, with a common offset
    initial_norm = model.head.weight.detach().norm(dim=1).mean()
    weights = PretrainedWeights("there", pretrained.state_dict(), [*"0123456", "seven", "eight", "nine"])
    assert initialize_from_pretrained(model, weights, CLASSES, reuse_head=True) == [*"0123456"]
    images = torch.randn(8, 1, 16, 16)
    expected = pretrained(images)[:, :7] - pretrained(images).mean(1, keepdim=True)
    logits = model(images)[:, :7]
    factor = logits.norm() / expected.norm()
    torch.testing.assert_close(logits, factor * expected, atol=1e-5, rtol=1e-4)
    assert 0.3 * initial_norm < model.head.weight[:7].norm(dim=1).mean() < 0.7 * initial_norm


def test_reused_rows_of_a_detector_answer_as_before_beside_new_classes_at_their_prior(tmp_path):
    torch.manual_seed(1)
    pretrained, names = CenterModel(4, width=16).eval(), ["oat milk", "peach tea", "lemon tea", "spanner"]
    with torch.no_grad():
        pretrained.head.weight.mul_(50)  # as after training
        pretrained.head.bias.sub_(2)
    config = TrainConfig(workload="x:y", batch_size=8, init_from=save_weights(tmp_path / "before", pretrained, names))
    workload = small_shelf()
    initial = build_initial_model(config, workload)
    assert sorted(initial.reused_classes) == ["lemon tea", "oat milk", "peach tea"]
    pictures = workload.input_transform(torch.device("cpu"), torch.float32)(workload.test.inputs)
    with torch.no_grad():
        maps, before = (model.eval()(pictures)["heatmap"] for model in (initial.model, pretrained))
    for name in initial.reused_classes:
        assert torch.equal(maps[:, workload.classes.index(name)], before[:, names.index(name)])
    new = [index for index, name in enumerate(workload.classes) if name not in names]
    assert torch.allclose(initial.model.head.bias[new].sigmoid(), torch.tensor(PRIOR))


def test_reused_rows_are_unchanged_if_no_class_is_new():
    pretrained, model = build_lenet(1), build_lenet(2)
    reversed_classes = CLASSES[::-1]
    assert (
        initialize_from_pretrained(
            model, PretrainedWeights("there", pretrained.state_dict(), reversed_classes), CLASSES, reuse_head=True
        )
        == CLASSES
    )
    images = torch.randn(8, 1, 16, 16)
    torch.testing.assert_close(model(images), pretrained(images).flip(1))


def test_head_without_one_row_per_class_is_not_reused():
    pretrained, model = build_lenet(1), build_lenet(2)
    initial_head = model.head.weight.detach().clone()
    for name in ("head.bias", "head.weight"):
        tensors = {key: value[:9] if key == name else value for key, value in pretrained.state_dict().items()}
        assert (
            initialize_from_pretrained(model, PretrainedWeights("there", tensors, CLASSES), CLASSES, reuse_head=True)
            == []
        )
        assert torch.equal(model.head.weight, initial_head)


def test_head_keeps_its_initialization_without_reuse_head():
    pretrained, model = build_lenet(1), build_lenet(2)
    initial_head = model.head.weight.detach().clone()
    assert (
        initialize_from_pretrained(
            model, PretrainedWeights("there", pretrained.state_dict(), CLASSES), CLASSES, reuse_head=False
        )
        == []
    )
    assert torch.equal(model.head.weight, initial_head)


def test_gray_model_gets_the_sum_of_the_color_channel_weights():
    pretrained, model = build_lenet(1, channels=3), build_lenet(2)
    initialize_from_pretrained(
        model, PretrainedWeights("there", pretrained.state_dict(), CLASSES), CLASSES, reuse_head=True
    )
    gray = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(model(gray), pretrained(gray.expand(-1, 3, -1, -1)))


def test_weights_of_another_model_are_refused_naming_the_first_mismatch():
    with raises_code("pretrained-mismatch", "body.7.weight is [120, 256], here it is [120, 64]"):
        initialize_from_pretrained(
            build_lenet(1),
            PretrainedWeights("there", model_factory("lenet", 10, 1, 24)().state_dict(), CLASSES),
            CLASSES,
            reuse_head=True,
        )
    with raises_code("pretrained-mismatch", "body.0.weight is missing"):
        initialize_from_pretrained(build_lenet(1), PretrainedWeights("there", {}, CLASSES), CLASSES, reuse_head=True)


def test_training_starts_from_the_weights_of_a_run(tmp_path):
    folder, pretrained = tmp_path / "before", build_lenet(1)
    config = replace(DIGITS, init_from=save_weights(folder, pretrained, CLASSES))
    training = Training(config)
    assert training.reused_classes == CLASSES
    for name, value in training.model.state_dict().items():
        assert torch.equal(value, pretrained.state_dict()[name])


def test_folder_without_model_and_damaged_file_are_refused(tmp_path):
    with raises_code("pretrained-unavailable", "--init-from"):
        load_pretrained(replace(DIGITS, init_from=str(tmp_path)))
    (tmp_path / "model.safetensors").write_bytes(b"12345678 no tensors")
    with raises_code("file-damaged", "model.safetensors"):
        load_pretrained(replace(DIGITS, init_from=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("lenet", "body.0", "head"),
        ("resnet18", "conv1", "fc"),
        ("mobilenet_v3_small", "features.0.0", "classifier.3"),
        ("squeezenet1_1", "features.0", "classifier.1"),
    ],
)
def test_stages_are_listed_from_first_layer_to_classifier(name, first, last):
    model = model_factory(name, 7, 3, 64)()
    stages = list_stages(model)
    assert [stages[0][0], stages[-1][0], find_classifier_layer(model, 7)] == [first, last, last]
    parameter_ids = [id(parameter) for _, modules in stages for module in modules for parameter in module.parameters()]
    assert sorted(parameter_ids) == sorted(map(id, model.parameters()))


def test_frozen_stages_keep_their_weights_and_running_statistics():
    config = TrainConfig(
        workload="vending",
        model="resnet18",
        image_size=32,
        batch_size=8,
        freeze_stages=3,
        max_examples=16,
        augment=False,
    )
    training = Training(config)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    list(training.laps())
    changed = {name for name, value in training.model.state_dict().items() if not torch.equal(value, before[name])}
    assert not any(name.startswith(("conv1", "bn1", "layer1")) for name in changed)
    assert {"fc.weight", "layer2.0.conv1.weight", "layer2.0.bn1.running_mean"} <= changed


def test_freezing_all_stages_is_refused_listing_their_names():
    with raises_code("option-range", "--freeze-stages 5", "5 stages (body.0, body.3"):
        freeze_stages(build_lenet(0), 5)
    with raises_code("option-range", "leaves nothing to train"):
        freeze_stages(nn.Sequential(nn.Linear(2, 2)), 1)


def test_body_learns_at_its_fraction_of_the_learning_rate():
    config = replace(DIGITS, lr=0.1, momentum=0, max_examples=32, body_lr_scale=0.25, augment=False)
    updates = {}
    for body_lr_scale in (1.0, 0.25):
        training = Training(replace(config, body_lr_scale=body_lr_scale))
        before = {name: value.clone() for name, value in training.model.state_dict().items()}
        list(training.laps())
        updates[body_lr_scale] = {name: value - before[name] for name, value in training.model.state_dict().items()}
    for name, full_update in updates[1.0].items():
        scaled_update = updates[0.25][name]
        torch.testing.assert_close(
            scaled_update, full_update if name.startswith("head") else full_update / 4, rtol=1e-3, atol=1e-7
        )


def test_pretrained_body_learns_slowly_by_default(tmp_path):
    model, config = build_lenet(0), replace(DIGITS, init_from=str(tmp_path))
    assert build_lr_scales(model, DIGITS, 10) == {}
    assert build_lr_scales(model, config, 10)["body.0.weight"] == 0.1
    assert build_lr_scales(model, config, 10)["head.bias"] == 1
    assert build_lr_scales(model, replace(config, body_lr_scale=1.0), 10) == {}


def test_torchvision_weights_are_read_from_the_data_folder(tmp_path, monkeypatch):
    from torchvision import models

    url = models.SqueezeNet1_1_Weights.DEFAULT.url
    config = TrainConfig(workload="vending", model="squeezenet1_1", init_from="torchvision", data=str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there: downloads fail at once
    with raises_code("pretrained-unavailable", url):
        load_pretrained(config)
    weights_folder = tmp_path / "weights"
    weights_folder.mkdir(exist_ok=True)
    pretrained = models.squeezenet1_1(weights=None)
    torch.save(pretrained.state_dict(), weights_folder / url.rpartition("/")[2])
    weights = load_pretrained(config)
    assert len(weights.classes) == 1000
    model = load_workload(config).model()
    assert initialize_from_pretrained(model, weights, list(load_workload(config).classes), reuse_head=True) == []
    assert torch.equal(model.features[0].weight, pretrained.features[0].weight)


class CreatesFolder:
    """Object whose pickle runs code when it is loaded."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_torchvision_weights_cannot_run_code(tmp_path):
    from torchvision import models

    path = tmp_path / "weights" / models.SqueezeNet1_1_Weights.DEFAULT.url.rpartition("/")[2]
    path.parent.mkdir()
    torch.save({"classifier.weight": CreatesFolder(tmp_path / "created")}, path)
    config = TrainConfig(workload="vending", model="squeezenet1_1", init_from="torchvision", data=str(tmp_path))
    with raises_code("pretrained-unavailable", path):
        load_pretrained(config)
    assert not (tmp_path / "created").exists()


def test_torchvision_weights_need_a_torchvision_model():
    with raises_code("option-conflict", "--model"):
        load_pretrained(replace(DIGITS, init_from="torchvision"))


def test_classifier_without_one_row_per_class_is_refused():
    with raises_code("model-invalid", 10):
        find_classifier_layer(nn.Sequential(nn.Linear(4, 3)), 10)


def test_model_without_classes_continues_from_all_weights_of_a_run_at_the_full_rate(tmp_path):
    first = Training(TrainConfig(workload="x:y", seed=3), any_workloads.text())
    (tmp_path / "run").mkdir()
    save_file(collect_weights(first.model), tmp_path / "run" / "model.safetensors", {"classes": "[]"})
    config = TrainConfig(workload="x:y", seed=4, init_from=str(tmp_path / "run"))
    continued = Training(config, any_workloads.text())
    weights = first.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in continued.model.state_dict().items())
    assert {scale for scale, _ in continued.optimizer.scaled_groups} == {1.0}
    with raises_code("option-conflict", "--body-lr-scale"):
        Training(replace(config, body_lr_scale=0.5), any_workloads.text())
    with raises_code("pretrained-mismatch"):
        Training(config, any_workloads.table())
