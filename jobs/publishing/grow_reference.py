"""Publish a copy of a bundle whose reference has grown by requests that the service answered without an alarm.

The means of a small reference are off by chance, so that false alarms come more often than asked for. Requests are like
the reference as long as the verdict is `ok`. Each of a sample of them joins the images of the condition that it shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.captures.traffic import TrafficSample
from equipoise.drift.adaptation.workload import DriftCondition
from equipoise.drift.charts.baseline import MIN_REFERENCE_IMAGES
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.errors import EquipoiseError
from jobs.publishing.bundle_copy import publish_copy
from jobs.publishing.image_check import ReferenceOutputs, assign_images, diagnose_without_proof, load_reference_outputs
from jobs.publishing.known_conditions import (
    LearnedCondition,
    condition_entries,
    limit_images,
    load_learned_conditions,
    load_pngs,
    predict_images,
)


@dataclass(frozen=True, kw_only=True)
class GrownReference:
    """Requests that join the reference of a bundle, and the conditions that it then knows."""

    counts: dict[str, int]
    """number of requests by the condition that they show"""
    learned: list[LearnedCondition]
    """conditions with their images; those named as the first condition belong to the reference"""


def plan_growth(model: ImageBundle, verdict: Verdict, capture_dir: str) -> GrownReference:
    """Return what would join the reference; refuse requests of which any may be a drift."""
    if verdict.state != "ok":
        raise EquipoiseError(
            "reference-unusable",
            f"cannot grow the reference: the verdict is {verdict.state}",
            "wait for ok, or adapt the model if the requests have changed",
        )
    images = load_pngs(model, TrafficSample(capture_dir, model.manifest.version, since_alarm=False).read_pngs())
    if len(images) < MIN_REFERENCE_IMAGES:
        raise EquipoiseError(
            "captures-empty",
            f"cannot grow the reference: {capture_dir} has {len(images)} requests to {model.name} "
            f"{model.manifest.version} without an alarm",
            f"wait for {MIN_REFERENCE_IMAGES}",
        )
    reference = load_reference_outputs(model)
    require_like_reference(model, reference, images)
    images_by_condition = group_by_condition(model, reference.profile, images)
    return GrownReference(
        counts={name: len(part) for name, part in images_by_condition.items()},
        learned=add_images(load_learned_conditions(model), images_by_condition),
    )


def require_like_reference(model: ImageBundle, reference: ReferenceOutputs, images: Tensor) -> None:
    """Refuse requests that as a set differ from the reference, though no alarm came."""
    verdict = diagnose_without_proof(model, reference, images)
    if verdict.state == "drift":
        raise EquipoiseError(
            "reference-unusable",
            f"cannot grow the reference: {len(images)} requests without an alarm do differ from it, {verdict.why}",
            "look at them: adapt the model if they have changed, and publish it with a larger reference split if not",
        )


def group_by_condition(model: ImageBundle, profile: ReferenceProfile, images: Tensor) -> dict[str, Tensor]:
    """Return images by the name of the known condition that each shows."""
    conditions = assign_images(profile.baseline, predict_images(model.run_engine, images)).conditions
    if conditions is None:
        return {PUBLISHED_CONDITION: images}
    names = np.array(profile.condition_names)[conditions]
    return {str(name): images[torch.from_numpy(names == name)] for name in np.unique(names)}


def add_images(learned: Sequence[LearnedCondition], images_by_condition: dict[str, Tensor]) -> list[LearnedCondition]:
    """Return learned conditions with further requests, the first condition in front if it has any."""
    if PUBLISHED_CONDITION in images_by_condition and not any(part.name == PUBLISHED_CONDITION for part in learned):
        no_images = images_by_condition[PUBLISHED_CONDITION][:0]
        learned = [LearnedCondition(PUBLISHED_CONDITION, DriftCondition(), no_images, 1.0), *learned]
    return [add_requests(part, images_by_condition.get(part.name)) for part in learned]


def add_requests(condition: LearnedCondition, requests: Tensor | None) -> LearnedCondition:
    """Return a condition with further requests among its images, as many as a bundle keeps."""
    if requests is None:
        return condition
    count = len(condition.images) + len(requests)
    real = condition.real_share * len(condition.images) + len(requests)
    return replace(condition, images=limit_images(torch.cat([condition.images, requests])), real_share=real / count)


def publish_with_larger_reference(
    model: ImageBundle, growth: GrownReference, data: str | None, out: Path
) -> str | None:
    """Publish the copy; return a warning on its reference, if there is one. `data` is as for `publish_copy`."""
    manifest = replace(model.manifest, conditions=condition_entries(growth.learned))
    return publish_copy(model, manifest, growth.learned, data, out)
