"""Compare a set of images with the reference of a bundle, under all conditions that it knows."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.drift.charts.baseline import Baseline
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.corruptions import invert_corruption
from equipoise.drift.diagnosis.dataset_findings import InversionProof
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray
from jobs.publishing.known_conditions import load_learned_conditions, predict_images

MAX_REMAINING_SHARE = 0.3  # of the drift, left after a cause was undone: with more the cause is not proved


@dataclass(frozen=True, eq=False)
class ReferenceOutputs:
    """What a model says of the reference images of all conditions that it knows."""

    profile: ReferenceProfile
    features: AnyArray
    """(images, features)"""
    predictions: NDArray[np.int64]
    """(images,) predicted classes"""
    conditions: NDArray[np.int64]
    """(images,) indices of the conditions"""


def diagnose_images(model: ImageBundle, images: Tensor, names: Sequence[str] | None = None) -> DatasetVerdict:
    """Return the verdict on preprocessed images, with the proof of its causes."""
    try:
        reference = load_reference_outputs(model)
    except EquipoiseError as error:
        if error.code != "reference-unusable":
            raise
        return DatasetVerdict(state="unknown", why=str(error), images=len(images))
    verdict = diagnose_without_proof(model, reference, images, names)
    return msgspec.structs.replace(verdict, proof=verify_by_inversion(model, reference, images, verdict))


def load_reference_outputs(model: ImageBundle) -> ReferenceOutputs:
    """Load the profile of a bundle and the outputs on its reference images; refuse a bundle without a reference.

    The outputs on images of learned conditions are computed, because the bundle holds these images alone.
    """
    arrays = model.load_reference_arrays()
    _, features = model.run_engine(torch.zeros(1, *model.shape, dtype=torch.uint8))
    profile = profile_from_arrays(arrays, model.classes, features.shape[1])
    predictions = [arrays["logits"].argmax(1)]
    conditions, parts = [np.zeros(len(predictions[0]), np.int64)], [arrays["features"]]
    for learned in load_learned_conditions(model):
        outputs = predict_images(model.run_engine, learned.images)
        assigned = assign_images(profile.baseline, outputs).conditions
        parts.append(outputs.features)
        predictions.append(outputs.labels)
        conditions.append(np.zeros(len(outputs.labels), np.int64) if assigned is None else assigned)
    return ReferenceOutputs(profile, *map(np.concatenate, (parts, predictions, conditions)))


def assign_images(baseline: Baseline, outputs: LabelledOutputs) -> ImageFeatures:
    """Return the charted features of images, with the condition of each."""
    return baseline.assign_conditions(extract_features(outputs, baseline.random_fourier, baseline.temperature))


def diagnose_without_proof(
    model: ImageBundle, reference: ReferenceOutputs, images: Tensor, names: Sequence[str] | None = None
) -> DatasetVerdict:
    """Return the verdict on preprocessed images, without undoing its causes."""
    outputs = predict_images(model.run_engine, images)
    return compute_dataset_verdict(
        reference.profile,
        assign_images(reference.profile.baseline, outputs),
        outputs.features,
        reference.features,
        reference.predictions,
        names,
        reference_conditions=reference.conditions,
    )


def verify_by_inversion(
    model: ImageBundle, reference: ReferenceOutputs, images: Tensor, verdict: DatasetVerdict
) -> InversionProof | None:
    """Undo the verdict's causes on the images and return the share of the drift left; None if one cannot be undone."""
    restored = images
    for effect in verdict.effects:
        inverted = invert_corruption(restored, effect.cause, effect.detail, effect.value)
        if inverted is None:
            return None
        restored = inverted
    if not verdict.effects:
        return None
    new_verdict = diagnose_without_proof(model, reference, restored)
    left = chart_excess_norm(new_verdict) / max(chart_excess_norm(verdict), 1e-9)
    return InversionProof(left=round(left, 4), proved=left <= MAX_REMAINING_SHARE, state=new_verdict.state)


def chart_excess_norm(verdict: DatasetVerdict) -> float:
    """Return the Euclidean norm of the charts' excess over their alarm thresholds."""
    return float(np.sqrt(sum(max(chart.value - chart.threshold, 0) for chart in verdict.charts)))
