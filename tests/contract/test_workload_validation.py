"""A workload that does not fit together is refused in one sentence, before anything is started."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.workloads import Split, load_workload
from equipoise.workloads.digits import digits
from equipoise.workloads.validation import validate_workload

TRIAL = TrainConfig(workload="digits")
MADE = digits(TRIAL)
ONE = MADE.train.pictures[:1]


def wrong_labels(labels):
    return replace(MADE, validation=Split(MADE.validation.pictures, labels))


def nothing(*_):
    raise KeyError("colour")


def wordless():
    raise ValueError


class Unreadable:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise OSError("no such file")


BROKEN = {
    "labels beyond the classes": (wrong_labels(MADE.validation.labels + 3), "validation split has labels from 3 to 12"),
    "labels of the wrong type": (wrong_labels(MADE.validation.labels.float()), "labels as a tensor of int64"),
    "fewer labels than pictures": (wrong_labels(MADE.validation.labels[1:]), "images and .* labels"),
    "no validation": (replace(MADE, validation=Split(ONE[:0], torch.empty(0, dtype=torch.int64))), "split is empty"),
    "float pictures": (replace(MADE, test=Split(ONE.float(), torch.tensor([1]))), "must have images as uint8"),
    "mean of two channels": (replace(MADE, mean=(0.1, 0.2)), "mean is .*1 channels"),
    "no deviation": (replace(MADE, std=(0.0,)), "std is .*above 0"),
    "target None": (replace(MADE, target=None), "target is None"),
    "a model, not a function": (replace(MADE, model=MADE.model()), r"model\(\) raised TypeError.*line \d+"),
    "no module": (replace(MADE, model=lambda: None), r"model\(\) returned a NoneType"),
    "too small a model": (replace(MADE, model=lambda: nn.Linear(3, 2)), r"model on images of \(1, 16, 16\) raised"),
    "one score": (
        replace(MADE, model=lambda: nn.Sequential(nn.Linear(16, 1), nn.Flatten(0))),
        "one row of scores per image",
    ),
    "loss a picture": (replace(MADE, loss=lambda a, b: F.cross_entropy(a, b, reduction="none")), "one number"),
    "metric NaN": (replace(MADE, metric=lambda a, b: torch.full_like(a[:, 0], torch.nan)), "metric must be one finite"),
    "nothing learns": (replace(MADE, model=nn.Flatten), "has no trainable parameters"),
    "fewer scores than classes": (
        replace(MADE, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 9))),
        "loss on scores of .* raised IndexError",
    ),
    "colours in one split": (
        replace(MADE, test=Split(ONE.repeat(1, 3, 1, 1), torch.tensor([1]))),
        r"model on images of \(3, 16, 16\) raised RuntimeError",
    ),
    "no split": (replace(MADE, train=None), "train split raised AttributeError"),
    "no classes": (replace(MADE, classes=None), "classes raised TypeError"),
    "one mean": (replace(MADE, mean=0.5), "mean or std raised TypeError"),
    "pictures that cannot be read": (
        replace(MADE, test=Split(Unreadable(), torch.tensor([1]))),
        "test_workload_validation.py, l",
    ),
    "a word without a reason": (replace(MADE, model=wordless), r"model\(\) raised ValueError: no message"),
    "metric raises": (replace(MADE, metric=nothing), "metric on .* raised KeyError: 'colour'"),
}


@pytest.mark.parametrize(("made", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_said(made, said):
    with pytest.raises(ValueError, match=f"^digits.*{said}"):
        validate_workload(made, TRIAL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def", "importing workload 'own_{i}:made' raised SyntaxError"),
        ("1 / 0", "importing workload 'own_{i}:made' raised ZeroDivisionError: division by zero .*own_{i}.py, line 1"),
        ("raise SystemExit(0)", "importing workload 'own_{i}:made' raised SystemExit"),
        ("def made(trial):\n    return trial['x']", "own_{i}:made raised TypeError: .*own_{i}.py, line 2"),
        ("def other(trial): ...", "module 'own_{i}' has no 'made'"),
    ],
    ids=["syntax", "import", "exit", "call", "name"],
)
def test_what_a_users_code_raises_is_said_with_its_place(tmp_path, monkeypatch, request, text, said):
    i = request.node.callspec.id
    (tmp_path / f"own_{i}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=said.format(i=i)):
        load_workload(TrainConfig(workload=f"own_{i}:made"))
