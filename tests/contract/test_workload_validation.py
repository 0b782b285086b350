"""Tests that a workload whose parts do not fit is refused in one sentence before anything is started."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.target import Target
from equipoise.workloads import Split, load_workload
from equipoise.workloads.digits import digits
from equipoise.workloads.validation import validate_workload
from tests.support.errors import raises_code

CONFIG = TrainConfig(workload="digits")
WORKLOAD = digits(CONFIG)
ONE_IMAGE = WORKLOAD.train.inputs[:1]


def with_validation_labels(labels):
    return replace(WORKLOAD, validation=Split(WORKLOAD.validation.inputs, labels))


def raise_key_error(*_):
    raise KeyError("colour")


def raise_without_message():
    raise ValueError


class UnreadableImages:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise OSError("no such file")


BROKEN_WORKLOADS = {
    "labels beyond the classes": (
        with_validation_labels(WORKLOAD.validation.targets + 3),
        "validation split has labels from 3 to 12",
    ),
    "labels of the wrong dtype": (
        with_validation_labels(WORKLOAD.validation.targets.float()),
        "labels as a tensor of int64",
    ),
    "fewer labels than images": (with_validation_labels(WORKLOAD.validation.targets[1:]), "images and .* labels"),
    "empty validation split": (
        replace(WORKLOAD, validation=Split(ONE_IMAGE[:0], torch.empty(0, dtype=torch.int64))),
        "split is empty",
    ),
    "float images": (replace(WORKLOAD, test=Split(ONE_IMAGE.float(), torch.tensor([1]))), "must have images as uint8"),
    "two-channel mean for one channel": (replace(WORKLOAD, mean=(0.1, 0.2)), "mean is .*1 channels"),
    "standard deviation of zero": (replace(WORKLOAD, std=(0.0,)), "std is .*above 0"),
    "target is a text": (replace(WORKLOAD, target="0.9"), "target is '0.9'"),
    "target is infinite": (replace(WORKLOAD, target=float("inf")), "target is inf"),
    "direction is a text": (replace(WORKLOAD, lower_is_better="yes"), "lower_is_better is 'yes'"),
    "model instance instead of factory": (
        replace(WORKLOAD, model=WORKLOAD.model()),
        r"its model is a LeNet, and each run needs a new one; .*model=lambda",
    ),
    "model factory returns None": (replace(WORKLOAD, model=lambda: None), r"model\(\) returned a NoneType"),
    "model that does not take the images": (
        replace(WORKLOAD, model=lambda: nn.Linear(3, 2)),
        r"model on inputs of \(1, 16, 16\) raised",
    ),
    "one score per image": (
        replace(WORKLOAD, model=lambda: nn.Sequential(nn.Linear(16, 1), nn.Flatten(0))),
        "one row of scores per image",
    ),
    "loss per image": (replace(WORKLOAD, loss=lambda a, b: F.cross_entropy(a, b, reduction="none")), "one number"),
    "metric is NaN": (
        replace(WORKLOAD, metric=lambda a, b: torch.full_like(a[:, 0], torch.nan)),
        "metric must be one finite",
    ),
    "no trainable parameters": (replace(WORKLOAD, model=nn.Flatten), "has no trainable parameters"),
    "fewer scores than classes": (
        replace(WORKLOAD, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 9))),
        "loss on outputs of .* raised IndexError",
    ),
    "color images in one split": (
        replace(WORKLOAD, test=Split(ONE_IMAGE.repeat(1, 3, 1, 1), torch.tensor([1]))),
        r"model on inputs of \(3, 16, 16\) raised RuntimeError",
    ),
    "split is None": (replace(WORKLOAD, train=None), "train split is a NoneType; give a Split"),
    "classes is None": (replace(WORKLOAD, classes=None), "classes raised TypeError"),
    "mean is a number": (replace(WORKLOAD, mean=0.5), "mean or std raised TypeError"),
    "unreadable images": (
        replace(WORKLOAD, test=Split(UnreadableImages(), torch.tensor([1]))),
        "test_workload_validation.py, l",
    ),
    "exception without message": (
        replace(WORKLOAD, model=raise_without_message),
        r"model\(\) raised ValueError: no message",
    ),
    "metric raises": (replace(WORKLOAD, metric=raise_key_error), "metric on .* raised KeyError: 'colour'"),
}


@pytest.mark.parametrize(("workload", "message"), BROKEN_WORKLOADS.values(), ids=BROKEN_WORKLOADS)
def test_broken_workload_is_refused_naming_the_problem(workload, message):
    with pytest.raises(EquipoiseError, match=f"^digits.*{message}") as raised:
        validate_workload(workload, CONFIG)
    assert raised.value.code == "workload-invalid"


def test_workload_may_have_no_target():
    assert validate_workload(replace(WORKLOAD, target=None), CONFIG).run_target(CONFIG) == Target(value=None)


def test_target_of_a_workload_is_not_turned_around_by_an_option():
    config = replace(CONFIG, lower_is_better=True)
    with raises_code("option-conflict", "--lower-is-better", "target of 0.96", "--target"):
        validate_workload(WORKLOAD, config)
    with_target = replace(config, target=0.2)
    assert validate_workload(WORKLOAD, with_target).run_target(with_target).describe() == "at most 0.2"
    falling = replace(WORKLOAD, lower_is_better=True, target=0.3)
    assert {validate_workload(falling, option).run_target(option).describe() for option in (CONFIG, config)} == {
        "at most 0.3"
    }
    without_target = validate_workload(replace(WORKLOAD, target=None), config)
    assert without_target.run_target(config) == Target(value=None, lower_is_better=True)


def test_single_value_in_a_batch_norm_is_refused_before_training():
    config = replace(CONFIG, model="resnet18", batch_size=1)
    with raises_code("model-invalid", "--batch-size 1", "batch norm"):
        load_workload(config)
    assert load_workload(replace(config, batch_size=2)).model()
    assert load_workload(replace(config, image_size=48)).model()
    assert load_workload(replace(CONFIG, batch_size=1)).model()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def", "importing workload 'own_{i}:made' raised SyntaxError"),
        ("1 / 0", "importing workload 'own_{i}:made' raised ZeroDivisionError: division by zero .*own_{i}.py, line 1"),
        ("raise SystemExit(0)", "importing workload 'own_{i}:made' raised SystemExit"),
        ("def made(trial):\n    return trial['x']", "own_{i}:made raised TypeError: .*own_{i}.py, line 2"),
        ("def other(trial): ...", "module 'own_{i}' has no 'made'"),
    ],
    ids=["syntax", "import", "exit", "call", "name"],
)
def test_broken_user_module_is_reported_with_its_location(tmp_path, monkeypatch, request, source, message):
    case_id = request.node.callspec.id
    (tmp_path / f"own_{case_id}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message.format(i=case_id)):
        load_workload(TrainConfig(workload=f"own_{case_id}:made"))
