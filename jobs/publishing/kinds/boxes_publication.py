"""Publication of detectors: models that find boxes in images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.boxes.mean_average_precision import MeanAveragePrecision, compute_precision, match_pictures
from equipoise.boxes.score_threshold import choose_score_threshold, judge_answers
from equipoise.bundle.engines import Engine
from equipoise.bundle.kinds.box_agreement import compare_boxes
from equipoise.bundle.kinds.boxes_input import BOX_LABELS_TENSOR, BOX_SCORES_TENSOR, BOXES_TENSOR, BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.image_input import FEATURES_TENSOR, IMAGES_TENSOR, ImageInput, ImagePreprocessing
from equipoise.bundle.kinds.inference_module import DetectionModule
from equipoise.drift.adaptation.workload import apply_corruptions
from equipoise.drift.features.box_stats import FoundBoxes
from equipoise.drift.profiling.box_profile import BoxFinder, SearchedImages, build_box_profile, find_in_batches
from equipoise.drift.profiling.profile_arrays import collect_profile_arrays
from equipoise.errors import EquipoiseError
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import FloatArray
from equipoise.workloads import Split
from equipoise.workloads.detection.workload import DETECTIONS, BoxWorkload
from jobs.publishing.kinds.publication import HeldOutFindings, Publication, add_drift_findings
from jobs.publishing.known_conditions import BETWEEN_SHARE, LearnedCondition
from jobs.publishing.reference_arrays import MAX_PROFILE_IMAGES, MAX_REFERENCE_IMAGES, sample_images

PLACEMENT_STEPS = "upright by EXIF, whole in the middle of the square on grey (124, 116, 104), bilinear, RGB"


class BoxesPublication(Publication):
    """Publication of a detector of things in images."""

    input_names = (IMAGES_TENSOR,)
    output_names = BOX_SCORES_TENSOR, BOXES_TENSOR, BOX_LABELS_TENSOR, FEATURES_TENSOR

    def __init__(self, workload: BoxWorkload) -> None:
        self.workload: BoxWorkload = workload

    def wrap_model(self, model: nn.Module, head_name: str | None) -> nn.Module:
        """Return the model with its normalization in front, and its boxes in order of their scores."""
        return DetectionModule(model, head_name, self.workload.mean, self.workload.std)

    def compare_outputs(self, expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
        """Return the largest relative error of an engine's scores and features, and whether its boxes are the same."""
        return compare_boxes(expected, outputs)

    def sample_inputs(self, split: Split, max_count: int) -> tuple[Tensor, ...]:
        """Return up to `max_count` images, evenly spaced over a split."""
        return (sample_images(split, max_count),)

    def describe_inputs(self) -> dict[str, Any]:
        """Return the fields of the manifest on the images that the model takes, and the boxes that it returns."""
        channels, height, width = self.workload.test.inputs[0].shape
        if channels != 3 or height != width:
            raise EquipoiseError(
                "workload-invalid",
                f"cannot publish {self.workload.name}: its images are {width}x{height} with {channels} channels",
                "give square images in colour, into which photographs are fitted whole",
            )
        preprocessing = ImagePreprocessing(
            picture=PLACEMENT_STEPS,
            mean=[float(mean) for mean in self.workload.mean],
            std=[float(std) for std in self.workload.std],
        )
        image = ImageInput(channels=channels, height=height, width=width, preprocessing=preprocessing)
        boxes = BoxesInput(image=image, max_boxes=count_answers(self.workload))
        return {"kind": "boxes", "boxes": boxes, "inputs": boxes.list_inputs()}

    def evaluate(self, run_engine: Engine, include_drift: bool, learned: Sequence[LearnedCondition]) -> HeldOutFindings:
        """Evaluate a detector, and build the reference of its drift charts."""
        found = {name: find_in_split(run_engine, getattr(self.workload, name)) for name in ("reference", "test")}
        judged = {name: judge_split(boxes, getattr(self.workload, name)) for name, boxes in found.items()}
        threshold = choose_score_threshold(judge_answers(judged["reference"]))
        metrics = evaluate_detection(judged["test"], list(self.workload.classes), threshold)
        arrays = self.build_reference_arrays(found["reference"])
        if not include_drift:
            return HeldOutFindings(metrics=metrics, arrays=arrays)
        return add_drift_findings(
            metrics, arrays, self._build_drift_arrays(run_engine, found["reference"], threshold, learned)
        )

    def build_reference_arrays(self, found: FoundBoxes) -> dict[str, Any]:
        """Return what the model finds on the reference split, with some of its images."""
        reference = self.workload.reference
        return {
            BOX_SCORES_TENSOR: found.scores.astype(np.float32),
            BOXES_TENSOR: found.boxes.astype(np.float32),
            BOX_LABELS_TENSOR: found.labels,
            FEATURES_TENSOR: found.features.astype(np.float32),
            "pictures": sample_images(reference, MAX_REFERENCE_IMAGES).numpy(),
            "places": evenly_spaced_indices(len(reference), MAX_REFERENCE_IMAGES),
        }

    def _build_drift_arrays(
        self, run_engine: Engine, found: FoundBoxes, threshold: float, learned: Sequence[LearnedCondition]
    ) -> dict[str, Any]:
        """Build the arrays of the drift profile; false alarms are counted on the validation split."""
        validation = self.workload.false_alarm_split or self.workload.validation
        reference = sample_searched_images(self.workload.reference, found)
        holdout = sample_searched_images(validation, find_in_split(run_engine, validation))
        classes = tuple(map(str, self.workload.classes))

        def find_boxes(images: Tensor) -> FoundBoxes:
            return read_found_boxes(run_engine(images))

        known = list_known_images(find_boxes, learned, reference.pictures)
        return collect_profile_arrays(
            lambda: build_box_profile(find_boxes, reference, classes, threshold, holdout, conditions=known)
        )


def list_known_images(
    find_boxes: BoxFinder, learned: Sequence[LearnedCondition], reference: Tensor
) -> list[tuple[str, SearchedImages]]:
    """Return the images of learned conditions, and of what lies between each and the reference, with their boxes."""
    images: list[tuple[str, Tensor]] = []
    for condition in learned:
        images.append((condition.name, condition.images))
        if changes := condition.condition.changes:
            images.append((condition.name, apply_corruptions(reference, changes, BETWEEN_SHARE)))
    return [(name, SearchedImages(part, find_in_batches(find_boxes, part))) for name, part in images]


def count_answers(workload: BoxWorkload) -> int:
    """Return how many answers a new model gives for an image."""
    images = sample_images(workload.test, 1)
    with torch.inference_mode():
        outputs = workload.model().eval()(workload.input_transform(images.device, torch.float32)(images))
    return int(outputs[DETECTIONS].shape[1])


def read_found_boxes(outputs: Sequence[Tensor]) -> FoundBoxes:
    """Return the outputs of a detector as arrays."""
    return FoundBoxes(*(output.numpy() for output in outputs))


def find_in_split(run_engine: Engine, split: Split) -> FoundBoxes:
    """Find the boxes in the images of a split."""
    images = sample_images(split, len(split))
    return find_in_batches(lambda batch: read_found_boxes(run_engine(batch)), images)


def judge_split(found: FoundBoxes, split: Split) -> FloatArray:
    """Return the rows of the images of a split, from which the average precision follows."""
    detections = [found.boxes, found.scores[..., None], found.labels[..., None]]
    return match_pictures(np.concatenate(detections, -1).astype(np.float64), split.targets.double().numpy())


def evaluate_detection(rows: FloatArray, classes: list[str], threshold: float) -> DetectionEvaluation:
    """Evaluate a detector from the rows of images that it was not trained on."""
    precision: MeanAveragePrecision = compute_precision(rows)
    share_right, share_found = judge_answers(rows).precision_and_recall(threshold)
    return DetectionEvaluation(
        average_precision=precision.overall,
        average_precision_50=precision.at_50,
        by_class={
            str(classes[label]): value
            for label, value in precision.by_class.items()
            if not math.isnan(value)  # of a class whose boxes in the test split are crowds, or difficult ones, alone
        },
        threshold=threshold,
        precision=share_right,
        recall=share_found,
    )


def sample_searched_images(split: Split, found: FoundBoxes) -> SearchedImages:
    """Return up to MAX_PROFILE_IMAGES images of a split with the boxes found in them, and how many are labelled."""
    places = evenly_spaced_indices(len(split), MAX_PROFILE_IMAGES)
    images = torch.stack([split.inputs[int(place)] for place in places])
    targets = split.targets.numpy()[places]
    label_counts = ((targets[..., 0] >= 0) & (targets[..., 5] <= 0)).sum(1)
    arrays = (found.scores, found.boxes, found.labels, found.features)
    return SearchedImages(images, FoundBoxes(*(array[places] for array in arrays)), label_counts)
