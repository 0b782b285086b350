"""Find what the final model of a run gets wrong on the test split: counts by class, and the first wrong images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equipoise.images.png import encode_png
from equipoise.images.thumbnails import make_thumbnail
from equipoise.runs.misclassified import MAX_MISCLASSIFIED, MisclassifiedImage
from equipoise.runs.record import ClassCount
from equipoise.training.evaluation import MAX_EVAL_BATCH
from equipoise.training.loop import Training
from equipoise.workloads.image_workload import ImageWorkload, top1_correct

DRAWABLE_CHANNELS = (1, 3)  # of an image that a PNG can show


@dataclass(frozen=True, kw_only=True)
class ClassErrors:
    """Counts by class and wrongly classified images of the test split."""

    classes: list[ClassCount]
    misclassified: list[MisclassifiedImage]


def find_class_errors(training: Training) -> ClassErrors | None:
    """Return the errors of a run that ended; None where the metric is not the accuracy over classes.

    One worker computes them alone, after the run: it needs no exchange, and the others have nothing left to do.
    """
    workload = training.workload
    if workload.metric is not top1_correct or not isinstance(workload, ImageWorkload):
        return None
    predictions, labels = predict_test_split(training), workload.test.targets.cpu()
    return ClassErrors(
        classes=count_by_class(predictions, labels, workload.classes),
        misclassified=collect_misclassified(training, predictions),
    )


def predict_test_split(training: Training) -> Tensor:
    """Return the predicted class of each test image."""
    training.model.eval()
    with torch.no_grad(), training.autocast():
        batches = training.loader.eval_batches(training.workload.test, 0, 1, MAX_EVAL_BATCH)
        return torch.cat([training.model(images).argmax(1).cpu() for images, _ in batches])


def count_by_class(predictions: Tensor, labels: Tensor, class_names: Sequence[str]) -> list[ClassCount]:
    """Count the images, and the right predictions, of each class that has images."""
    images = torch.bincount(labels, minlength=len(class_names)).tolist()
    correct = torch.bincount(labels[predictions == labels], minlength=len(class_names)).tolist()
    return [
        ClassCount(name=str(name), images=count, correct=right)
        for name, count, right in zip(class_names, images, correct, strict=True)
        if count
    ]


def collect_misclassified(training: Training, predictions: Tensor) -> list[MisclassifiedImage]:
    """Return the first wrongly classified test images as thumbnails; none of images that a PNG cannot show."""
    split, names = training.workload.test, training.workload.classes
    if split.inputs[0].shape[0] not in DRAWABLE_CHANNELS:
        return []
    wrong = torch.nonzero(predictions != split.targets.cpu()).flatten()[:MAX_MISCLASSIFIED].tolist()
    return [
        MisclassifiedImage(
            index=index,
            label=str(names[int(split.targets[index])]),
            predicted=str(names[int(predictions[index])]),
            png=make_thumbnail(encode_png(split.inputs[index].cpu())),
        )
        for index in wrong
    ]
