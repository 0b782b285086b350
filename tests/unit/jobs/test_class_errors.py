"""What the final model gets wrong: counts by class in the record, and the first wrong images beside it."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.misclassified import (
    MISCLASSIFIED_FILE,
    MisclassifiedImage,
    read_misclassified,
    write_misclassified,
)
from equipoise.runs.record import ClassCount, Record
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record
from equipoise.workloads.base import Split
from jobs.ray_train.class_errors import count_by_class, find_class_errors

CONFIG = TrainConfig(workload="digits", batch_size=32, lr=0.05, max_examples=640, target=2.0)


@pytest.fixture(scope="module")
def training():
    """A run that has seen too few digits to be right about all of them."""
    training = Training(CONFIG)
    for _ in training.laps():
        pass
    return training


def test_counts_and_images_are_those_of_the_model(training):
    errors, split = find_class_errors(training), training.workload.test
    correct = sum(count.correct for count in errors.classes)
    assert correct / len(split) == pytest.approx(training.evaluate(split))
    assert [count.images for count in errors.classes] == torch.bincount(split.targets).tolist()
    with torch.no_grad():
        training.model.eval()
        predictions = training.model(training.loader.prepare_inputs(split.inputs)).argmax(1)
    wrong = torch.nonzero(predictions != split.targets).flatten().tolist()
    assert len(wrong) > 12
    assert [image.index for image in errors.misclassified] == wrong[:12]
    for image in errors.misclassified:
        names = (
            training.workload.classes[split.targets[image.index]],
            training.workload.classes[predictions[image.index]],
        )
        assert (image.label, image.predicted) == names
        np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(image.png))), split.inputs[image.index][0])


def test_finding_errors_leaves_the_weights_as_they_were(training):
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    find_class_errors(training)
    assert all(torch.equal(value, before[name]) for name, value in training.model.state_dict().items())


def test_metric_other_than_the_accuracy_has_no_counts(training):
    other = replace(training.workload, metric=lambda logits, labels: -(logits.argmax(1) - labels).abs().double())
    assert find_class_errors(Training(CONFIG, other)) is None


def test_class_without_test_images_is_left_out():
    counts = count_by_class(torch.tensor([0, 2, 2]), torch.tensor([0, 0, 2]), ["ant", "bee", "cat"])
    assert counts == [ClassCount(name="ant", images=2, correct=1), ClassCount(name="cat", images=1, correct=1)]
    assert [count.accuracy for count in counts] == [0.5, 1.0]


def test_images_that_no_png_can_show_are_counted_only(training):
    split = training.workload.test
    pairs = Split(split.inputs[:20].expand(-1, 2, -1, -1), split.targets[:20])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(512, 10))
    names = ("train", "validation", "test", "reference")
    workload = replace(training.workload, model=lambda: model, mean=(0, 0), std=(1, 1), **dict.fromkeys(names, pairs))
    errors = find_class_errors(Training(replace(CONFIG, batch_size=4), workload))
    assert errors.misclassified == [] and sum(count.images for count in errors.classes) == 20


def test_record_and_file_keep_what_was_found(training, tmp_path):
    errors = find_class_errors(training)
    record = build_run_record(training, 0.5, errors.classes)
    assert [*Record.from_json(record.to_json()).test_classes] == errors.classes
    assert read_misclassified(tmp_path) == []
    write_misclassified(tmp_path, errors.misclassified)
    assert read_misclassified(tmp_path) == errors.misclassified and len(errors.misclassified) == 12


@pytest.mark.parametrize(
    "text", ["{}", '[{"index": 1}]', "[", '[{"index": 1, "label": "a", "predicted": "b", "png": "!"}]']
)
def test_damaged_file_is_refused_with_what_to_do(tmp_path, text):
    (tmp_path / MISCLASSIFIED_FILE).write_text(text)
    with pytest.raises(EquipoiseError, match="remove it") as error:
        read_misclassified(tmp_path)
    assert error.value.code in ("run-damaged", "file-damaged")


def test_file_is_small_and_readable(tmp_path):
    write_misclassified(tmp_path, [MisclassifiedImage(index=3, label="a", predicted="b", png=b"\x89PNG")])
    assert '"label": "a"' in (tmp_path / MISCLASSIFIED_FILE).read_text()
