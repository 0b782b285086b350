"""Adapt a model after a drift: choose the recipe for the verdict's cause, and train the model with it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from equipoise.bundle.bundle import PictureBundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.fit_corruptions import MIN_DRIFTED_IMAGES, CorruptionFit, fit_corruption_amounts
from equipoise.drift.adaptation.label_prior import label_shift_weights, shift_class_prior
from equipoise.drift.adaptation.labelled_images import group_images, load_labelled_images
from equipoise.drift.adaptation.workload import (
    ADAPTED_WORKLOAD,
    AMOUNT_SHARE_RANGE,
    LABELLED_FOLDER,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    apply_corruptions,
    load_base_workload,
    load_images,
)
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.drift.features.box_stats import BOX_CAUSES
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.hardware import describe_hardware
from equipoise.planning.document import PlanDocument
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from equipoise.storage.user_paths import make_absolute
from equipoise.training.finetune import find_classifier_layer, initialize_from_pretrained, load_from_run_or_bundle
from equipoise.training.torch_state import collect_weights
from equipoise.workloads import load_workload
from jobs.publishing.known_conditions import find_condition
from jobs.publishing.labelled_captures import LabelSources, export_labels
from jobs.ray_train.run import train_on_cluster

ADVICE_BY_CAUSE = {
    "blur": "clean or focus the lens: lost detail is gone, and training on blurred images costs accuracy on sharp ones;"
    " give --accept-blur if it is there to stay",
    "new class": "label the images that look like nothing before (GET /capture), and train with a class for them",
    **dict.fromkeys(
        BOX_CAUSES,
        "the light is as before: label 30 captures or more on the page of equipoise label, and give them with --labels",
    ),
    "features": "no change of light or camera explains it: label 30 images or more and give them with --capture-dir,"
    " and boxes with --labels",
}
MIN_LABELS = 30  # labelled images needed where the cause does not say what changed
LABELLED_CAUSES = ("features", *BOX_CAUSES)  # causes to which a model is adapted by labelled images alone
VALIDATION_SHARE = 0.3  # of the labelled images, held out from training to judge the model
MAX_LISTED_CLASSES = 3  # classes listed, those whose shares changed most


def find_advice(cause: str | None, label_count: int, accept_blur: bool) -> str | None:
    """Return what a person should do first about a cause; None where the model can be adapted to it."""
    is_adaptable = accept_blur if cause == "blur" else cause in LABELLED_CAUSES and label_count >= MIN_LABELS
    return None if cause is None or is_adaptable else ADVICE_BY_CAUSE.get(cause)


def build_recipe(model: PictureBundle, verdict: Verdict, data: str | None) -> AdaptationRecipe:
    """Build the recipe for a verdict, on top of earlier adaptations; `data` is where the workload's files lie now."""
    config, latest = training_history(model)
    before = find_condition(model.manifest, verdict.condition) or latest
    known = tuple(DriftCondition.from_json(entry.changes) for entry in model.manifest.conditions)
    changes = tuple(CorruptionAmount(effect.cause, effect.detail, effect.value) for effect in verdict.effects)
    if isinstance(model, BoxesBundle) and any(change.cause == "geometry" for change in changes):
        raise EquipoiseError(
            "adaptation-impossible",
            "cannot adapt: the images are turned or nearer, so that the boxes of the training images would not fit",
            "mount the camera as before, or label images and train with them",
        )
    return AdaptationRecipe(
        workload=config.name,
        data=make_absolute(data or config.data),
        drift=DriftCondition(changes, label_shift_by_class(model, verdict) if verdict.cause == "label shift" else None),
        before=replace(before, weights=latest.weights),
        known=tuple(condition for condition in known if condition not in (before, DriftCondition())),
    )


def training_history(model: PictureBundle) -> tuple[TrainConfig, DriftCondition]:
    """Return the config that the model was first trained with, and the condition it has been adapted to since."""
    remedy = model.manifest.remedy
    try:
        before = DriftCondition() if remedy is None else DriftCondition.from_json(remedy)
        return model.manifest.decode_config(), before
    except EquipoiseError as error:
        raise error.within(f"cannot adapt {model.folder}") from None


def label_shift_by_class(model: PictureBundle, verdict: Verdict) -> dict[str, float]:
    """Estimate each class's share of requests relative to its share of the reference."""
    predicted_counts = np.array([verdict.classes.get(name, 0) for name in model.classes], np.float64)
    return dict(zip(model.classes, label_shift_weights(load_profile(model), predicted_counts).tolist(), strict=True))


def load_profile(model: PictureBundle) -> ReferenceProfile:
    """Load the reference profile of a bundle."""
    return load_bundle_profile(model)


def describe_condition(condition: DriftCondition, label_count: int) -> str:
    """Describe in words what the adaptation to a condition will do."""
    if condition.weights:
        listed = sorted(condition.weights.items(), key=lambda item: -abs(np.log(item[1])))[:MAX_LISTED_CLASSES]
        return "expects new class shares: " + ", ".join(
            f"{name} {weight:.2g} times as often" for name, weight in listed
        )
    changes = [
        f"{change.cause} {change.detail} {format_number(change.value)} {change.corruption.unit}".replace("  ", " ")
        for change in condition.changes
    ]
    low, high = AMOUNT_SHARE_RANGE
    drift = f" under {' and '.join(changes)}, at {low:.0%} to {high:.0%} of that size," if changes else ""
    return f"fine-tunes on the training images{drift} and {label_count} labelled images"


def prepare_recipe(
    sources: LabelSources, model: PictureBundle, recipe: AdaptationRecipe, verdict: Verdict, work_folder: Path
) -> AdaptationRecipe:
    """Write the recipe and its labelled images to a folder, its changes fitted to them if there are enough."""
    if count := export_labels(sources, model, verdict, work_folder / LABELLED_FOLDER):
        recipe = replace(recipe, train=count - round(VALIDATION_SHARE * count))
    base = load_base_workload(recipe, model.manifest.decode_config())
    images, labels = load_labelled_images(work_folder / LABELLED_FOLDER, base)
    if len(labels) >= MIN_DRIFTED_IMAGES and recipe.drift.changes:
        clean_images = apply_corruptions(load_images(base.validation), recipe.before.changes)
        clean_groups, groups = group_images(base.validation.targets.numpy(), labels.numpy())
        fit = CorruptionFit(clean_images, clean_groups, images, groups)
        recipe = replace(recipe, drift=DriftCondition(tuple(fit_corruption_amounts(recipe.drift.changes, fit))))
        print(describe_condition(recipe.drift, len(labels)))
    recipe.write(work_folder)
    return recipe


def train_adapted_model(
    model: PictureBundle, recipe: AdaptationRecipe, work_folder: Path, epochs: int, workers: int
) -> bool:
    """Train by the recipe into the run folder below `work_folder`; return False if training was stopped."""
    config = build_adaptation_config(model, work_folder, epochs, workers)
    if recipe.drift.weights is None or isinstance(model, BoxesBundle):  # a detector has no class shares
        return train_on_cluster(config, work_folder / "run") is not None
    net = load_workload(config).model()
    initialize_from_pretrained(net, load_from_run_or_bundle(model.folder), model.classes, reuse_head=True)
    head = net.get_submodule(find_classifier_layer(net, len(model.classes)))
    shift_class_prior(head, model.temperature, np.array([recipe.drift.weights[name] for name in model.classes]))
    (work_folder / "run").mkdir()
    weights = {name: value.contiguous() for name, value in collect_weights(net).items()}
    save_file(weights, work_folder / "run" / "model.safetensors")
    hardware = describe_hardware(torch.device("cpu"))
    record = Record(
        config=config, machine=hardware, laps=[], status="max_examples", target=None, examples_to_target=None, test=None
    )
    write_json(work_folder / "run" / "record.json", record.to_json())
    return True


def build_adaptation_config(model: PictureBundle, work_folder: Path, epochs: int, workers: int) -> TrainConfig:
    """Build the config of the fine-tuning, with the plan's batch size if the model was trained by a plan."""
    first_config = model.manifest.decode_config()
    config = replace(
        first_config,
        grad_accumulation=1,
        all_reduce="backend",  # another number of workers may not be able to run the algorithm of the first training
        sync="step",  # a way of exchange pays for the workers and links that it was planned for
        compression="none",
        grow_batch="none",  # of a schedule for the examples of the first training
        workload=ADAPTED_WORKLOAD,
        data=str(work_folder),
        init_from=str(model.folder.absolute()),
        workers=workers,
        batch_size=planned_batch_size(model, first_config.batch_size),
        schedule="cosine",
        target=None,
        body_lr_scale=0.1,
        freeze_stages=0,
    )
    length = len(load_workload(config).train)
    return replace(config, max_examples=epochs * length, eval_every=epochs * length)


def planned_batch_size(model: PictureBundle, otherwise: int) -> int:
    """Return the batch size of the plan that a model was trained by, or `otherwise` without a plan."""
    document = model.manifest.plan
    plan = PlanDocument.from_json(document, f"cannot adapt {model.folder} by its plan").plan if document else None
    return plan.batch if plan else otherwise
