"""Tests that mistakes in a workload of any kind of data are refused in one sentence, before anything is started."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.training.loop import Training
from equipoise.workloads import Split, Unit, Workload
from equipoise.workloads.batch import stack_examples
from equipoise.workloads.validation import validate_workload
from tests.support.errors import raises_code

CONFIG = TrainConfig(workload="mine", batch_size=8, max_examples=64)


def draw_split(count, columns=1):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return Split(inputs, 2 * inputs[:, :columns])


def squared_errors(outputs, targets):
    return (outputs - targets).square().flatten(1).mean(1)


def build_workload(**changes):
    fields = {
        "name": "mine",
        "train": draw_split(64),
        "validation": draw_split(40),
        "reference": draw_split(8),
        "test": draw_split(9),
        "model": lambda: nn.Linear(4, 1),
        "target": None,
        "loss": F.mse_loss,
        "metric": squared_errors,
        "lower_is_better": True,
    }
    return Workload(**fields | changes)


def with_rows(score):
    return {"metric": lambda outputs, targets: torch.cat([outputs, targets], 1), "score": score}


class Model(nn.Module):
    """Linear layer whose output is changed by a function of the module and the output."""

    def __init__(self, change, layer=nn.Linear):
        super().__init__()
        self.layer, self.change = layer(4, 1), change

    def forward(self, inputs):
        return self.change(self, self.layer(inputs))


def model_that(change):
    return {"model": partial(Model, change)}


def compute_without_gradient(model, output):
    with torch.no_grad():
        return model.layer(torch.zeros(len(output), 4))


def raise_in_training(model, output):
    if model.training:
        raise RuntimeError("no such layer")
    return output


class PairDataset(Dataset):
    """Data set of pairs that may be shorter than it says, and whose examples a function changes."""

    def __init__(self, length=64, examples=64, change=lambda pair: pair):
        self.length, self.examples, self.change = length, examples, change

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index >= self.examples:
            raise IndexError(f"place {index}")
        inputs = torch.full((4,), index / 64)
        return self.change((inputs, inputs[:1]))


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), torch.zeros(1)


class StreamWithLength(Stream):
    def __len__(self):
        return 64


def train_on(inputs, *targets, **options):
    return {"train": Split(inputs, *targets, **options)}


ZEROS, ONE_TARGET = torch.zeros(64, 4), torch.zeros(64, 1)
MISTAKES = {
    "model of two outputs": ({"model": lambda: nn.Linear(4, 2)}, "target size"),
    "model without the last dimension": (model_that(lambda _, output: output[:, 0]), "target size"),
    "model of a dict": (model_that(lambda _, output: {"scores": output}), "loss on outputs"),
    "model of a tuple": (model_that(lambda _, output: (output, output)), "loss on outputs"),
    "model of nothing": (model_that(lambda *_: None), "outputs of a NoneType"),
    "model without gradients": (model_that(compute_without_gradient), "no gradient"),
    "model that fails in training": (model_that(raise_in_training), "in training"),
    "model with more outputs in training": (
        model_that(lambda model, output: (output, output) if model.training else output),
        "loss in training",
    ),
    "model that cannot be differentiated": (
        model_that(lambda _, output: output.sigmoid().mul_(0)),
        "gradient of its loss",
    ),
    "lazy model": ({"model": lambda: nn.LazyLinear(1)}, "has no size yet"),
    "loss of each example": ({"loss": squared_errors}, "loss must be one number"),
    "loss is a float": ({"loss": lambda o, t: float(F.mse_loss(o, t))}, "got a float"),
    "loss is whole": ({"loss": lambda o, t: torch.tensor(1)}, "int64"),
    "loss is complex": ({"loss": lambda o, t: F.mse_loss(o, t) * 1j}, "complex"),
    "loss without gradient": ({"loss": lambda o, t: F.mse_loss(o, t).detach()}, "no gradient"),
    "loss of something else": ({"loss": lambda o, t: torch.zeros((), requires_grad=True) * 2}, "no gradient"),
    "loss is no number": ({"loss": lambda o, t: F.mse_loss(o, t) * torch.nan}, "its loss is nan"),
    "loss is a class": ({"loss": nn.MSELoss}, "its loss on"),
    "metric is a mean": ({"metric": F.mse_loss}, "metric must be one finite number"),
    "metric of an array": ({"metric": lambda o, t: (o - t).numpy()[:, 0]}, "ndarray"),
    "metric of three rows": ({"metric": lambda o, t: torch.zeros(3)}, "for two examples"),
    "metric is complex": ({"metric": lambda o, t: squared_errors(o, t) * 1j}, "metric must be one finite number"),
    "metric of planes": ({"metric": lambda o, t: (o - t)[:, None]}, "metric must be one finite number"),
    "metric without one example": ({"metric": lambda o, t: (o - t).squeeze()}, "for one example"),
    "metric of columns without score": ({"metric": lambda o, t: o - t}, "has no score"),
    "score of columns": (with_rows(lambda rows: rows.mean(0)), "score must return one number"),
    "score of nothing": (with_rows(lambda _: None), "NoneType"),
    "score is a text": (with_rows(lambda _: "0.5"), "str"),
    "score is no function": (with_rows("r2"), "score is a str"),
    "stream": (train_on(Stream()), "__getitem__"),
    "stream with a length": (train_on(StreamWithLength()), "__getitem__"),
    "generator": (train_on(iter([1, 2])), "__getitem__"),
    "loader": (train_on(DataLoader(PairDataset())), "__getitem__"),
    "data set without split": ({"train": PairDataset()}, "give a Split"),
    "shorter than its length": (train_on(PairDataset(examples=63)), "example 63 of its PairDataset"),
    "negative length": (train_on(PairDataset(length=-1)), "its train split"),
    "examples of nothing": (train_on(PairDataset(change=lambda _: None)), "its train split"),
    "examples without targets": (train_on(PairDataset(change=lambda pair: pair[0])), "pair of inputs and targets"),
    "examples of three parts": (train_on(PairDataset(change=lambda pair: (*pair, 1))), "pair of inputs and targets"),
    "examples of unequal length": (
        train_on(PairDataset(change=lambda pair: (pair[0][: 1 + int(pair[0][0] > 0.5)], pair[1]))),
        "collate raised",
    ),
    "collate that drops an example": (
        train_on(PairDataset(), collate=lambda pairs: stack_examples(pairs[1:])),
        "must keep all examples",
    ),
    "collate of nothing": (train_on(PairDataset(), collate=lambda _: None), "NoneType"),
    "collate is no function": (train_on(PairDataset(), collate=None), "collate raised TypeError"),
    "inputs without targets": (train_on(ZEROS), "no targets; give targets"),
    "tuple without targets": (train_on((ZEROS, ZEROS)), "no targets; give targets"),
    "targets in an array": (train_on(ZEROS, np.zeros(64)), "torch.from_numpy"),
    "inputs with a gradient": (train_on(ZEROS.clone().requires_grad_(), ONE_TARGET), "with a gradient"),
    "sparse inputs": (train_on(ZEROS.to_sparse(), ONE_TARGET), "sparse"),
    "targets that are no numbers": (train_on(ZEROS, ONE_TARGET / 0), "example 0"),
    "unit as a text": ({"unit": "tokens"}, "unit is 'tokens'"),
    "unit of nothing": ({"unit": Unit("tokens", per_example=0)}, "unit is Unit"),
    "unit of parts": ({"unit": Unit("tokens", per_example=2.5)}, "unit is Unit"),
    "unit without a name": ({"unit": Unit("")}, "unit is Unit"),
    "name of nothing": ({"name": None}, "name is None"),
    "classes in a text": ({"classes": "abc"}, "list of texts"),
    "classes as numbers": ({"classes": [1, 2]}, "list of texts"),
    "class twice": ({"classes": ["a", "b", "a"]}, "'a' twice"),
    "augmentation that fails": ({"augment": lambda *_: 1 / 0}, "augmentation raised"),
    "augmentation of too few arguments": (
        {"augment": lambda inputs, targets: (inputs, targets)},
        "augmentation raised",
    ),
    "augmentation that drops": ({"augment": lambda inputs, targets, *_: (inputs[1:], targets)}, "keep their number"),
    "target is a truth": ({"target": True}, "target is True"),
    "unknown default": ({"defaults": {"optimiser": "adamw"}}, "did you mean 'optimizer'"),
    "defaults of any names": ({"defaults": {3: 1, "x": 2}}, "defaults have 3"),
    "default of nothing": ({"defaults": {"lr": None}}, "None for lr"),
    "default as a text": ({"defaults": {"lr": "0.1"}}, "'0.1' for lr"),
    "default in parts": ({"defaults": {"eval_every": 10.5}}, "10.5 for eval_every"),
}


@pytest.mark.parametrize(("changes", "mentioned"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_sentence_that_names_the_workload(changes, mentioned):
    with pytest.raises(EquipoiseError) as raised:
        validate_workload(build_workload(**changes), CONFIG)
    message = str(raised.value)
    assert raised.value.code in ("workload-invalid", "dataset-invalid")
    assert mentioned in message and message.isprintable() and len(message) < 1000
    assert message.startswith("mine: ") or "score" in message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        model_that(lambda _, output: {"scores": output}) | {
            "loss": lambda o, t: F.mse_loss(o["scores"], t),
            "metric": lambda o, t: squared_errors(o["scores"], t),
        },
        {"metric": lambda o, t: (o > t)[:, 0]},
        with_rows(lambda rows: rows.mean()),
        with_rows(lambda rows: np.float32(rows.sum())),
        with_rows(lambda rows: float(rows[5, 0])),  # which two rows do not have
        {"defaults": {"lr": 1, "warmup_examples": 8}, "classes": ("a", "b"), "unit": Unit("words", per_example=3)},
        train_on(PairDataset()),
        train_on([(torch.zeros(4), torch.zeros(1))] * 64),
        {"augment": lambda inputs, targets, *_: (inputs + 1, targets)},
    ],
    ids=["plain", "dict", "truths", "score as a tensor", "score as an array", "score of many", "options", "data set",
         "list", "augmentation"],
)  # fmt: skip
def test_a_workload_that_fits_is_accepted_and_trains(changes):
    training = Training(CONFIG, validate_workload(build_workload(**changes), CONFIG))
    for _lap in training.laps():
        pass
    assert training.status == "max_examples"
    assert isinstance(training.evaluate(training.workload.test), float)


@pytest.mark.parametrize(
    ("changes", "mentioned"),
    [
        ({"metric": lambda o, t: squared_errors(o, t)[: max(2, len(o) - 1)]}, "for 40 examples"),
        (with_rows(lambda rows: 1 / 0), "ZeroDivisionError"),
        (with_rows(lambda rows: None if len(rows) > 2 else 0.5), "NoneType"),
        ({"validation": Split(PairDataset(), collate=lambda pairs: stack_examples(pairs[:7]))}, "keep all examples"),
        ({"validation": Split(PairDataset(change=lambda pair: 1 / int(pair[0][0] * 64 - 7) and pair))}, "example 7"),
    ],
    ids=["metric", "score that fails", "score of nothing", "collate", "example"],
)
def test_a_mistake_that_shows_with_many_examples_ends_the_evaluation(changes, mentioned):
    workload = validate_workload(build_workload(**changes), CONFIG)
    training = Training(CONFIG, workload)
    with pytest.raises(EquipoiseError) as raised:
        training.evaluate(workload.validation)
    assert mentioned in str(raised.value)
    assert raised.value.code in ("workload-invalid", "dataset-invalid")


def test_a_data_set_that_is_random_is_named_once_and_trains(caplog):
    validate_workload(build_workload(**train_on(PairDataset())), CONFIG)
    assert not caplog.records
    noisy = PairDataset(change=lambda pair: (pair[0] + torch.rand(4), pair[1]))
    assert validate_workload(build_workload(**train_on(noisy)), CONFIG)
    (record,) = caplog.records
    assert "mine: its train split is random" in record.getMessage() and "augment" in record.getMessage()


def test_checks_leave_the_random_numbers_of_torch_and_python_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    state = random.getstate()
    validate_workload(build_workload(model=lambda: nn.Sequential(nn.Linear(4, 1), nn.Dropout())), CONFIG)
    assert torch.equal(torch.rand(3), expected)
    assert random.getstate() == state


def test_a_single_example_is_tried_where_batches_have_one():
    workload = build_workload(model=lambda: nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)))
    assert validate_workload(workload, CONFIG)
    with raises_code("model-invalid", "--batch-size 1"):
        validate_workload(workload, TrainConfig(workload="mine", batch_size=1))
