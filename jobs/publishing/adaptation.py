"""Learn on after a drift: what is to be done about it, and the run that does it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from equipoise.bundle.bundle import Bundle
from equipoise.captures.store import CaptureStore
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.fit_corruptions import MIN_DRIFTED_IMAGES, CorruptionFit, fit_corruption_amounts
from equipoise.drift.adaptation.label_prior import label_shift_weights, shift_class_prior
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
    load_labelled_images,
)
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.formatting import format_number
from equipoise.hardware import describe_hardware
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from equipoise.training.finetune import find_classifier_layer, initialize_from_pretrained, load_from_run_or_bundle
from equipoise.workloads import load_workload
from jobs.publishing.drift_verdict import Verdict
from jobs.ray_train.run import train_on_cluster

VALIDATION_SHARE = 0.3  # of the labelled pictures judge and are not learned from
MAX_LISTED_CLASSES = 3  # classes whose shares changed most


def build_recipe(model: Bundle, verdict: Verdict, data: str | None) -> AdaptationRecipe:
    """Choose what is to be done, on top of what was done before; `data` is where the workload's files lie now."""
    trial, before = training_history(model)
    changes = tuple(CorruptionAmount(one.cause, one.detail, one.value) for one in verdict.effects)
    return AdaptationRecipe(
        workload=trial.workload,
        data=str(Path(data or trial.data).absolute()),
        drift=DriftCondition(changes, label_shift_by_class(model, verdict) if verdict.cause == "label shift" else None),
        before=before,
    )


def training_history(model: Bundle) -> tuple[TrainConfig, DriftCondition]:
    """Return how the model learned first, and what it was adapted to since."""
    try:
        before = DriftCondition.from_json(model.manifest["remedy"]) if "remedy" in model.manifest else DriftCondition()
        _ = [one.corruption for one in before.changes]
        return TrainConfig(**model.manifest["config"]), before
    except (KeyError, TypeError, ValueError) as error:
        why = f"{model.folder} does not say how its model was made, or as another version does ({error!r})"
        raise ValueError(f"{why}: publish it again") from None


def label_shift_by_class(model: Bundle, verdict: Verdict) -> dict[str, float]:
    """Estimate, by class, how much oftener it comes than in the reference."""
    called = np.array([verdict.classes.get(name, 0) for name in model.classes], np.float64)
    return dict(zip(model.classes, label_shift_weights(load_profile(model), called).tolist(), strict=True))


def load_profile(model: Bundle) -> ReferenceProfile:
    """Return what the bundle knows of its reference."""
    _, features = model.run_engine(torch.zeros(1, *model.shape, dtype=torch.uint8))
    return profile_from_arrays(model.load_reference_arrays(), len(model.classes), features.shape[1])


def count_labels(capture: str | None, model: Bundle, verdict: Verdict) -> int:
    """Count the labelled pictures among those kept since the drift began, of classes that the model knows."""
    if capture is None:
        return 0
    kept = CaptureStore(capture).list_captures(limit=None)
    return sum(one["label_given"] in model.classes and one["at"] >= verdict.onset_seconds for one in kept)


def describe_condition(condition: DriftCondition, label_count: int) -> str:
    """Say in words what will be done."""
    if condition.weights:
        most = sorted(condition.weights.items(), key=lambda one: -abs(np.log(one[1])))[:MAX_LISTED_CLASSES]
        return "expects classes anew: " + ", ".join(f"{name} {weight:.2g} times as often" for name, weight in most)
    words = [
        f"{one.cause} {one.detail} {format_number(one.value)} {one.corruption.unit}".replace("  ", " ")
        for one in condition.changes
    ]
    light = f"the training pictures under {' and '.join(words)}" if words else "the training pictures"
    low, high = AMOUNT_SHARE_RANGE
    return f"learns on with {light}, from {low:.0%} to {high:.0%} of it, and {label_count} labels"


def prepare_recipe(
    capture: str | None, model: Bundle, recipe: AdaptationRecipe, verdict: Verdict, work_folder: Path
) -> AdaptationRecipe:
    """Put the remedy and its labelled pictures into a folder, with its changes fitted to them if there are enough."""
    if capture and count_labels(capture, model, verdict):
        kept = CaptureStore(capture).export_labelled(
            work_folder / LABELLED_FOLDER, model.classes, verdict.onset_seconds
        )
        held = sum(kept.values())
        recipe = replace(recipe, train=held - round(VALIDATION_SHARE * held))
    base = load_base_workload(recipe, model.manifest["config"])
    few, labels = load_labelled_images(work_folder / LABELLED_FOLDER, base)
    if len(labels) >= MIN_DRIFTED_IMAGES and recipe.drift.changes:
        lately = apply_corruptions(load_images(base.validation), recipe.before.changes)
        fit = CorruptionFit(lately, base.validation.labels.numpy(), few, labels.numpy())
        recipe = replace(recipe, drift=DriftCondition(tuple(fit_corruption_amounts(recipe.drift.changes, fit))))
        print(describe_condition(recipe.drift, len(labels)))
    recipe.write(work_folder)
    return recipe


def train_adapted_model(model: Bundle, recipe: AdaptationRecipe, work_folder: Path, passes: int, workers: int) -> bool:
    """Leave a run in the folder whose model is the remedy's, and return False if it was stopped."""
    trial = build_adaptation_config(model, work_folder, passes, workers)
    if recipe.drift.weights is None:
        return train_on_cluster(trial, work_folder / "run") is not None
    net = load_workload(trial).model()
    initialize_from_pretrained(net, load_from_run_or_bundle(model.folder), model.classes, reuse_head=True)
    head = net.get_submodule(find_classifier_layer(net, len(model.classes)))
    shift_class_prior(head, model.temperature, np.array([recipe.drift.weights[name] for name in model.classes]))
    (work_folder / "run").mkdir()
    weights = {name: value.contiguous() for name, value in net.state_dict().items()}
    save_file(weights, work_folder / "run" / "model.safetensors")
    here = describe_hardware(torch.device("cpu"))
    record = Record(
        config=trial, machine=here, laps=[], status="max_examples", target=1, examples_to_target=None, test=None
    )
    write_json(work_folder / "run" / "record.json", record.to_json())
    return True


def build_adaptation_config(model: Bundle, work_folder: Path, passes: int, workers: int) -> TrainConfig:
    """Build the trial that learns on: with the plan's batch, if the model was made by one."""
    facts = {name: value for name, value in model.manifest["config"].items() if name != "grad_accumulation"}
    before = TrainConfig(**facts)
    plan = (model.manifest.get("plan") or {}).get("plan") or {}
    batch = int(plan.get("batch", before.batch_size))
    trial = replace(
        before,
        workload=ADAPTED_WORKLOAD,
        data=str(work_folder),
        init_from=str(model.folder.absolute()),
        workers=workers,
        batch_size=batch,
        schedule="cosine",
        target=None,
        body_lr_scale=0.1,
        freeze_stages=0,
    )
    length = len(load_workload(trial).train)
    return replace(trial, max_examples=passes * length, eval_every=passes * length)
