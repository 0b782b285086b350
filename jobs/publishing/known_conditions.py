"""Conditions that an adapted model knows beside that of its training data, each with images of it.

A condition is learned from requests where there are enough, and from simulated images otherwise. Its images stay in the
bundle, so that the next adaptation does not forget what an earlier one has learned. Requests by which the reference of
the first condition has grown are kept in the same way, under the name of that condition.
"""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.bundle import PictureBundle
from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.engines import Engine
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.bundle.manifest import Manifest
from equipoise.captures.traffic import TrafficSample
from equipoise.drift.adaptation.workload import (
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    PictureWorkload,
    apply_corruptions,
    load_images,
)
from equipoise.drift.charts.baseline import MIN_REFERENCE_IMAGES, fit_baseline
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.drift.diagnosis.verdict import StreamVerdict, Verdict
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import (
    KnownCondition,
    LabelledOutputs,
    extract_features,
)
from equipoise.drift.profiling.reference_examples import concat_conditions
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.images.decode import load_image
from equipoise.spacing import evenly_spaced_indices
from equipoise.workloads import Split

MIN_CONDITION_IMAGES = 300  # with fewer requests of a condition, simulated images are added
MAX_CONDITION_BYTES = 64 << 20  # of the images of one condition in a bundle
MAX_CONDITION_IMAGES = 1000
BETWEEN_SHARE = 0.5  # of the change: images halfway between two conditions, across which the model was trained
MIN_RELATIVE_SHARE = 0.75  # of new-looking images among requests, relative to simulated ones: fewer are a mixture
PREDICTION_BATCH_IMAGES = 64
MAX_SIZE_DIFFERENCE = 0.1  # of the size of a known change: a change within it is the same one


@dataclass(frozen=True, eq=False)
class LearnedCondition:
    """Condition that a model was adapted to, with images of it."""

    name: str
    """name that verdicts report, such as `warmer, 4,400 K`"""
    condition: DriftCondition
    """what it does to images of the original training data"""
    images: Tensor
    """uint8 (images, channels, height, width)"""
    real_share: float
    """share of the images that are requests; the others were simulated"""


def learn_condition(
    model: PictureBundle, recipe: AdaptationRecipe, verdict: Verdict, capture_dir: str | None, base: PictureWorkload
) -> LearnedCondition | None:
    """Collect images of the condition that a model is adapted to; None for new class shares, or without any images."""
    if recipe.drift.weights is not None:
        return None
    traffic = load_traffic(model, verdict.onset_seconds, capture_dir)
    simulated = traffic[:0]
    if recipe.drift.changes:
        simulated = apply_corruptions(load_images(base.reference), recipe.combined_condition.changes)
        traffic = select_images_of_condition(model, traffic, simulated, base)
        missing = max(0, MIN_CONDITION_IMAGES - len(traffic))
        simulated = simulated[torch.from_numpy(evenly_spaced_indices(len(simulated), missing))]
    images = limit_images(torch.cat([traffic, simulated]))
    if len(images) < MIN_REFERENCE_IMAGES:
        print(
            f"note: {len(images)} requests show the new condition, and at least {MIN_REFERENCE_IMAGES} are needed to"
            " know it: drift alarms may go on; give --capture-dir, and wait for more requests"
        )
        return None
    real_share = len(traffic) / (len(traffic) + len(simulated))
    known = [entry.name for entry in model.manifest.conditions]
    name = name_condition(verdict, recipe, known)
    print(f"{name}: learned from {len(images):,} images, {real_share:.0%} of them requests, the others simulated")
    return LearnedCondition(name, recipe.combined_condition, images, real_share)


def load_traffic(model: PictureBundle, since: float, capture_dir: str | None) -> Tensor:
    """Load the sampled requests since a Unix time as uint8 (images, channels, height, width); none without captures."""
    return load_pngs(model, TrafficSample(capture_dir, model.manifest.version).read_pngs(since) if capture_dir else [])


def load_pngs(model: PictureBundle, pngs: Sequence[bytes]) -> Tensor:
    """Load captured images as uint8 (images, channels, height, width)."""
    images = [load_image(io.BytesIO(png), tuple(model.shape)) for png in pngs]
    return torch.stack(images) if images else torch.zeros((0, *model.shape), dtype=torch.uint8)


def select_images_of_condition(
    model: PictureBundle, traffic: Tensor, simulated: Tensor, base: PictureWorkload
) -> Tensor:
    """Return the requests of a new condition: all of them, unless some show conditions that the model knows already.

    Conditions overlap, so that some images of a new one look like a known one. Only where more of the requests do so
    than of the simulated images, those that do are left out. Of a detector all are taken.
    """
    if not len(traffic) or isinstance(model, BoxesBundle):
        return traffic
    known = [load_images(base.reference), *(condition.images for condition in load_learned_conditions(model))]
    groups = [predict_images(model.run_engine, images) for images in (*known, simulated, traffic)]
    random_fourier = fit_random_features(groups[0].features)
    *conditions, requests = [extract_features(group, random_fourier, model.temperature) for group in groups]
    names = [str(index) for index in range(len(conditions))]
    baseline = fit_baseline(concat_conditions(conditions), len(model.classes), random_fourier, model.temperature, names)
    last = len(conditions) - 1
    is_new = np.asarray(baseline.assign_conditions(requests).conditions == last)
    is_simulated_new = np.asarray(baseline.assign_conditions(conditions[-1]).conditions == last)
    if is_new.mean() >= MIN_RELATIVE_SHARE * is_simulated_new.mean():
        return traffic
    return traffic[torch.from_numpy(is_new)]


def limit_images(images: Tensor) -> Tensor:
    """Return at most as many images as a bundle keeps of a condition, evenly spaced."""
    room = max(1, MAX_CONDITION_BYTES // max(1, images[:1].nbytes))
    return images[torch.from_numpy(evenly_spaced_indices(len(images), min(room, MAX_CONDITION_IMAGES)))]


def name_condition(verdict: Verdict, recipe: AdaptationRecipe, known_names: Sequence[str]) -> str:
    """Name a condition by its main change, or by the day on which the drift began."""
    parts = [
        f"{describe_change(change)}, {format_number(change.value)} {change.corruption.unit}"
        for change in recipe.drift.changes[:2]
    ]
    day = verdict.since.at[:10] if isinstance(verdict, StreamVerdict) and verdict.since else ""
    name = " and ".join(part.strip() for part in parts) or f"change of {day}".strip()
    taken = {PUBLISHED_CONDITION, *known_names}
    numbered = (f"{name} ({number})" for number in range(2, len(taken) + 2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def describe_change(change: CorruptionAmount) -> str:
    """Return the direction of a change, with its cause where that says too little, such as `reflection all over`."""
    return (
        change.detail if change.detail and change.cause != "reflection" else f"{change.cause} {change.detail}".strip()
    )


def build_known_conditions(
    predict: Engine, learned: Sequence[LearnedCondition], reference: Split
) -> list[KnownCondition]:
    """Return the learned conditions for a reference profile, and what lies between each and the training data.

    Those named as the first condition are further images of it.
    """
    known = []
    for condition in learned:
        known.append(KnownCondition(condition.name, predict_images(predict, condition.images), has_labels=False))
        if changes := condition.condition.changes:
            between = apply_corruptions(load_images(reference), changes, BETWEEN_SHARE)
            known.append(KnownCondition(condition.name, predict_images(predict, between, reference.targets)))
    return known


def predict_images(predict: Engine, images: Tensor, labels: Tensor | None = None) -> LabelledOutputs:
    """Return images with a model's outputs; without labels, the predicted classes take their place."""
    parts = [predict(batch) for batch in images.split(PREDICTION_BATCH_IMAGES)]
    logits, features = (torch.cat([part[index] for part in parts]).numpy() for index in (0, 1))
    return LabelledOutputs(images, logits, features, logits.argmax(1) if labels is None else labels.numpy())


def condition_arrays(learned: Sequence[LearnedCondition]) -> dict[str, Any]:
    """Return the images of learned conditions as arrays of reference.npz."""
    return {f"condition {index}": condition.images.numpy() for index, condition in enumerate(learned)}


def condition_entries(learned: Sequence[LearnedCondition]) -> tuple[ConditionEntry, ...]:
    """Return the entries of learned conditions in a manifest."""
    return tuple(
        ConditionEntry(
            name=condition.name,
            images=len(condition.images),
            real_share=condition.real_share,
            changes=asdict(condition.condition),
        )
        for condition in learned
    )


def load_learned_conditions(model: PictureBundle) -> list[LearnedCondition]:
    """Load the conditions that a bundle has learned, with their images."""
    if not model.manifest.conditions:
        return []
    arrays = model.load_reference_arrays()
    learned = []
    for index, entry in enumerate(model.manifest.conditions):
        images = arrays.get(f"condition {index}")
        if images is None or images.dtype != np.uint8 or images.shape[1:] != tuple(model.shape):
            raise EquipoiseError(
                "bundle-invalid",
                f"cannot use {model.folder}: it has no images of its condition {entry.name}",
                "publish it again",
            )
        condition = DriftCondition.from_json(entry.changes)
        learned.append(LearnedCondition(entry.name, condition, torch.from_numpy(images), entry.real_share))
    return learned


def find_condition(manifest: Manifest, name: str | None) -> DriftCondition | None:
    """Return a condition of a bundle by the name that a verdict gives; None for names that the bundle does not know."""
    if name == PUBLISHED_CONDITION:
        return DriftCondition()
    entry = next((entry for entry in manifest.conditions if entry.name == name), None)
    return DriftCondition.from_json(entry.changes) if entry else None


def require_new_condition(manifest: Manifest, recipe: AdaptationRecipe, verdict: Verdict) -> None:
    """Refuse to adapt a model to a condition that it knows already.

    The alarm goes on, so that this is no success: there is something that the condition does not explain.
    """
    if not recipe.drift.changes:
        return
    candidates = [recipe.combined_condition.changes]
    if verdict.condition is None:  # as in a verdict from before the condition was learned
        candidates.append(recipe.drift.changes)
    for entry in manifest.conditions:
        known = DriftCondition.from_json(entry.changes).changes
        if any(are_similar_changes(changes, known) for changes in candidates):
            raise EquipoiseError(
                "adaptation-impossible",
                f"cannot adapt: the bundle knows this condition already, as {entry.name!r}",
                "forget it first with --forget to learn it anew",
            )


def are_similar_changes(changes: Sequence[CorruptionAmount], known: Sequence[CorruptionAmount]) -> bool:
    """Return whether changes have the causes and details of known ones, and sizes within MAX_SIZE_DIFFERENCE."""
    sizes, known_sizes = sum_sizes(changes), sum_sizes(known)
    return sizes.keys() == known_sizes.keys() and all(
        abs(sizes[key] - size) <= MAX_SIZE_DIFFERENCE * abs(size) for key, size in known_sizes.items()
    )


def sum_sizes(changes: Sequence[CorruptionAmount]) -> dict[tuple[str, str], float]:
    """Return the size of the changes of each cause and detail, as the distance from no change."""
    sizes: dict[tuple[str, str], float] = {}
    for change in changes:
        key = change.cause, change.detail
        sizes[key] = sizes.get(key, 0.0) + change.distance_from_neutral
    return sizes


def read_remedy(manifest: Manifest) -> DriftCondition:
    """Return the condition that a model was last adapted to; the original one if it never was."""
    return DriftCondition() if manifest.remedy is None else DriftCondition.from_json(manifest.remedy)
