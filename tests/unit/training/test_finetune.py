"""What a model takes over from another one, and what learns how fast."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.finetune import (
    DEFAULT_BODY_LR,
    PretrainedWeights,
    build_lr_scales,
    find_classifier_layer,
    freeze_stages,
    initialize_from_pretrained,
    list_stages,
    load_pretrained,
)
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from equipoise.workloads.models import model_factory

DIGITS = TrainConfig(workload="digits", batch_size=32, warmup=0)
CLASSES = [str(digit) for digit in range(10)]


def lenet(seed, classes=10, channels=1):
    torch.manual_seed(seed)
    return model_factory("lenet", classes, channels, 16)()


def kept(folder, network, classes):
    folder.mkdir(exist_ok=True)
    weights = {name: value.contiguous() for name, value in network.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(classes)})
    return str(folder)


def test_a_body_is_taken_over_and_rows_by_the_names_of_their_classes():
    old, new = lenet(1), lenet(2)
    drawn = new.head.weight.detach().clone()
    names = ["eight", "0", "nine", "1", *"abcdef"]
    same = initialize_from_pretrained(
        new, PretrainedWeights("there", old.state_dict(), names), CLASSES, reuse_head=True
    )
    assert same == ["0", "1"]
    for name, value in new.body.state_dict().items():
        assert torch.equal(value, old.body.state_dict()[name])
    assert torch.equal(new.head.weight[2:], drawn[2:])


def test_rows_beside_new_ones_say_the_same_less_loudly():
    old, new = lenet(1), lenet(2)
    with torch.no_grad():
        old.head.weight.mul_(7).add_(0.3)  # learned to the end, with something in common
    drawn = new.head.weight.detach().norm(dim=1).mean()
    before = PretrainedWeights("there", old.state_dict(), [*"0123456", "seven", "eight", "nine"])
    assert initialize_from_pretrained(new, before, CLASSES, reuse_head=True) == [*"0123456"]
    images = torch.randn(8, 1, 16, 16)
    expected = old(images)[:, :7] - old(images).mean(1, keepdim=True)
    found = new(images)[:, :7]
    share = found.norm() / expected.norm()
    torch.testing.assert_close(found, share * expected, atol=1e-5, rtol=1e-4)
    assert 0.3 * drawn < new.head.weight[:7].norm(dim=1).mean() < 0.7 * drawn


def test_rows_are_taken_as_they_are_if_no_class_is_new():
    old, new = lenet(1), lenet(2)
    turned = CLASSES[::-1]
    assert (
        initialize_from_pretrained(new, PretrainedWeights("there", old.state_dict(), turned), CLASSES, reuse_head=True)
        == CLASSES
    )
    images = torch.randn(8, 1, 16, 16)
    torch.testing.assert_close(new(images), old(images).flip(1))


def test_a_head_whose_rows_are_not_those_of_its_classes_gives_none():
    old, new = lenet(1), lenet(2)
    drawn = new.head.weight.detach().clone()
    for name in ("head.bias", "head.weight"):
        tensors = {key: value[:9] if key == name else value for key, value in old.state_dict().items()}
        assert (
            initialize_from_pretrained(new, PretrainedWeights("there", tensors, CLASSES), CLASSES, reuse_head=True)
            == []
        )
        assert torch.equal(new.head.weight, drawn)


def test_rows_are_left_as_they_were_drawn_if_asked():
    old, new = lenet(1), lenet(2)
    drawn = new.head.weight.detach().clone()
    assert (
        initialize_from_pretrained(
            new, PretrainedWeights("there", old.state_dict(), CLASSES), CLASSES, reuse_head=False
        )
        == []
    )
    assert torch.equal(new.head.weight, drawn)


def test_weights_for_colours_serve_grey_by_their_sum():
    old, new = lenet(1, channels=3), lenet(2)
    initialize_from_pretrained(new, PretrainedWeights("there", old.state_dict(), CLASSES), CLASSES, reuse_head=True)
    grey = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(new(grey), old(grey.expand(-1, 3, -1, -1)))


def test_another_model_is_refused_by_the_first_weight_that_differs():
    with pytest.raises(
        ValueError, match=r"--init-from there holds another model: its body.7.weight is \[120, 256\], here"
    ):
        initialize_from_pretrained(
            lenet(1),
            PretrainedWeights("there", model_factory("lenet", 10, 1, 24)().state_dict(), CLASSES),
            CLASSES,
            reuse_head=True,
        )
    with pytest.raises(ValueError, match="is missing, here it is"):
        initialize_from_pretrained(lenet(1), PretrainedWeights("there", {}, CLASSES), CLASSES, reuse_head=True)


def test_a_run_is_read(tmp_path):
    folder, old = tmp_path / "before", lenet(1)
    trial = replace(DIGITS, init_from=kept(folder, old, CLASSES))
    training = Training(trial)
    assert training.reused_classes == CLASSES
    for name, value in training.model.state_dict().items():
        assert torch.equal(value, old.state_dict()[name])


def test_a_folder_without_a_model_and_a_damaged_one_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no model: give a bundle or a finished run"):
        load_pretrained(replace(DIGITS, init_from=str(tmp_path)))
    (tmp_path / "model.safetensors").write_bytes(b"12345678 no tensors")
    with pytest.raises(ValueError, match=r"cannot read --init-from .*: the file is damaged"):
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
def test_stages_run_from_the_bottom_to_the_head(name, first, last):
    network = model_factory(name, 7, 3, 64)()
    found = list_stages(network)
    assert [found[0][0], found[-1][0], find_classifier_layer(network, 7)] == [first, last, last]
    held = [id(parameter) for _, modules in found for module in modules for parameter in module.parameters()]
    assert sorted(held) == sorted(map(id, network.parameters()))


def test_frozen_stages_do_not_move_and_their_norms_count_nothing():
    trial = TrainConfig(
        workload="vending",
        model="resnet18",
        image_size=32,
        batch_size=8,
        freeze_stages=3,
        max_examples=16,
        augment=False,
    )
    training = Training(trial)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    list(training.laps())
    moved = {name for name, value in training.model.state_dict().items() if not torch.equal(value, before[name])}
    assert not any(name.startswith(("conv1", "bn1", "layer1")) for name in moved)
    assert {"fc.weight", "layer2.0.conv1.weight", "layer2.0.bn1.running_mean"} <= moved


def test_freezing_everything_is_refused_with_the_stages_by_name():
    with pytest.raises(
        ValueError, match=r"--freeze-stages 5 leaves nothing to train: the model has 5 stages \(body.0, body.3"
    ):
        freeze_stages(lenet(0), 5)


def test_the_body_learns_at_its_share_of_the_rate():
    trial = replace(DIGITS, lr=0.1, momentum=0, max_examples=32, body_lr_scale=0.25, augment=False)
    steps = {}
    for share in (1.0, 0.25):
        training = Training(replace(trial, body_lr_scale=share))
        before = {name: value.clone() for name, value in training.model.state_dict().items()}
        list(training.laps())
        steps[share] = {name: value - before[name] for name, value in training.model.state_dict().items()}
    for name, whole in steps[1.0].items():
        part = steps[0.25][name]
        torch.testing.assert_close(part, whole if name.startswith("head") else whole / 4, rtol=1e-3, atol=1e-7)


def test_what_was_learned_before_learns_slowly_unless_asked(tmp_path):
    network, trial = lenet(0), replace(DIGITS, init_from=str(tmp_path))
    assert build_lr_scales(network, DIGITS, 10) == {}
    assert build_lr_scales(network, trial, 10)["body.0.weight"] == DEFAULT_BODY_LR
    assert build_lr_scales(network, trial, 10)["head.bias"] == 1
    assert build_lr_scales(network, replace(trial, body_lr_scale=1.0), 10) == {}


def test_torchvisions_weights_are_taken_from_the_data_folder(tmp_path, monkeypatch):
    from torchvision import models

    url = models.SqueezeNet1_1_Weights.DEFAULT.url
    trial = TrainConfig(workload="vending", model="squeezenet1_1", init_from="torchvision", data=str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # no network, at once
    with pytest.raises(ValueError, match=f"downloading it failed .*; put {url} there"):
        load_pretrained(trial)
    place = tmp_path / "weights"
    place.mkdir(exist_ok=True)
    network = models.squeezenet1_1(weights=None)
    torch.save(network.state_dict(), place / url.rpartition("/")[2])
    found = load_pretrained(trial)
    assert len(found.classes) == 1000
    fresh = load_workload(trial).model()
    assert initialize_from_pretrained(fresh, found, list(load_workload(trial).classes), reuse_head=True) == []
    assert torch.equal(fresh.features[0].weight, network.features[0].weight)


def test_torchvisions_weights_need_one_of_its_models():
    with pytest.raises(ValueError, match="needs a torchvision --model such as resnet18"):
        load_pretrained(replace(DIGITS, init_from="torchvision"))


def test_a_head_of_another_make_is_refused():
    with pytest.raises(ValueError, match="does not have 10 rows, one per class"):
        find_classifier_layer(nn.Sequential(nn.Linear(4, 3)), 10)
