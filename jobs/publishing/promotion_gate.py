"""Gate between an adapted model and its publication: compare it with the old model on held-out images."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from equipoise.boxes.mean_average_precision import MeanAveragePrecision, compute_precision
from equipoise.bundle.bundle import PictureBundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.drift.adaptation.gate_report import GATE_FILE, GateReport, GateRow
from equipoise.drift.adaptation.labelled_images import load_labelled_images
from equipoise.drift.adaptation.workload import (
    LABELLED_FOLDER,
    AdaptationRecipe,
    DriftCondition,
    apply_condition,
    load_base_workload,
    load_images,
)
from equipoise.workloads import Split
from jobs.publishing.kinds.boxes_publication import find_in_split, judge_split

MAX_CLEAN_ACCURACY_LOSS = 0.005  # accuracy that may be lost on clean images
MAX_CLEAN_PRECISION_LOSS = 0.02  # mean average precision that a detector may lose on clean images
MIN_RECOVERED_SHARE = 0.5  # of the accuracy lost to the drift, that must come back


def passes_gate(
    old_bundle: PictureBundle, new_bundle: PictureBundle, recipe: AdaptationRecipe, work_folder: Path
) -> bool:
    """Return whether the new model is better where the old one fails and no worse elsewhere; print both accuracies.

    The accuracy of a detector is its mean average precision.
    """
    base = load_base_workload(recipe, old_bundle.manifest.decode_config())
    images, labels = load_labelled_images(work_folder / LABELLED_FOLDER, base)
    clean = {"clean": apply_condition(base.test, recipe.before)}
    if recipe.before != DriftCondition():
        clean["at first"] = base.test
    for number, condition in enumerate(recipe.known, 1):
        clean[f"known {number}"] = apply_condition(base.test, condition)
    drifted = (
        {"drifted": apply_condition(base.test, recipe.combined_condition)} if recipe.drift != DriftCondition() else {}
    )
    rows = {
        name: (measure_accuracy(old_bundle, split), measure_accuracy(new_bundle, split))
        for name, split in (clean | drifted).items()
    }
    comparisons = [DriftComparison(rows["clean"][0], *rows[name]) for name in drifted]
    if recipe.train is not None and len(labels) > recipe.train:
        held_out = Split(images[recipe.train :], labels[recipe.train :])
        if labelled := compare_hand_labelled(old_bundle, new_bundle, clean["clean"], held_out):
            comparisons.append(labelled)
            rows["labelled"] = labelled.before, labelled.after
    for name, (before, after) in rows.items():
        print(f"{name:10} {before:7.2%} -> {after:7.2%}")
    reason = (
        label_shift_rejection_reason(rows["clean"], [(pair.before, pair.after) for pair in comparisons])
        if recipe.drift.weights
        else rejection_reason([rows[name] for name in clean], comparisons, max_clean_loss(old_bundle))
    )
    if reason:
        print(f"refused: {reason}")
    compared = tuple(GateRow(images=name, before=before, after=after) for name, (before, after) in rows.items())
    GateReport(rows=compared, refusal=reason).write(work_folder / GATE_FILE)
    return reason is None


@dataclass(frozen=True)
class DriftComparison:
    """Accuracy on images of a drift, before and after an adaptation to it."""

    clean: float
    """what the old model reaches without the drift"""
    before: float
    after: float


def rejection_reason(
    clean_pairs: list[tuple[float, float]],
    comparisons: list[DriftComparison],
    max_loss: float = MAX_CLEAN_ACCURACY_LOSS,
) -> str | None:
    """Return why the new model is refused, from accuracies before and after; None if it passes.

    Where the drift cost at most `max_loss`, the new model may lose no more than that either.
    """
    if not comparisons:
        return "no held-out images show the drift; label some that do"
    worst = max(before - after for before, after in clean_pairs)
    if worst > max_loss:
        return f"{worst:.2%} accuracy lost on clean images; at most {max_loss:.2%} is allowed"
    for drifted in comparisons:
        lost, gained = drifted.clean - drifted.before, drifted.after - drifted.before
        if lost <= max_loss:
            if -gained > max_loss:
                return (
                    f"{-gained:.2%} accuracy lost on drifted images, where the old model is as good as on clean"
                    f" ones; at most {max_loss:.2%} is allowed"
                )
        elif gained < MIN_RECOVERED_SHARE * lost:
            return (
                f"{gained:.2%} regained of {lost:.2%} accuracy lost to the drift; "
                f"at least {MIN_RECOVERED_SHARE:.0%} of it must be regained"
            )
    return None


def max_clean_loss(model: PictureBundle) -> float:
    """Return the accuracy that an adapted model may lose on clean images."""
    return MAX_CLEAN_PRECISION_LOSS if isinstance(model, BoxesBundle) else MAX_CLEAN_ACCURACY_LOSS


def measure_accuracy(model: PictureBundle, split: Split) -> float:
    """Return the top-1 accuracy of a bundle on a split; of a detector, its mean average precision."""
    if isinstance(model, BoxesBundle):
        return measure_precision(model, split).overall
    images = load_images(split)
    predicted = torch.cat([model.run_engine(batch)[0].argmax(1) for batch in images.split(64)])
    labels: Tensor = split.targets
    return float((predicted == labels).double().mean())


def measure_hand_labelled(model: PictureBundle, split: Split) -> float:
    """Return the accuracy of a bundle on images that people have labelled.

    Boxes drawn by hand are off by a pixel or two, so that they cannot tell a good box from a perfect one: of a detector
    this is the average precision at an overlap of 0.5 alone.
    """
    return measure_precision(model, split).at_50 if isinstance(model, BoxesBundle) else measure_accuracy(model, split)


def compare_hand_labelled(
    old_bundle: PictureBundle, new_bundle: PictureBundle, clean: Split, held_out: Split
) -> DriftComparison | None:
    """Compare both models on images that people have labelled; None where a detector has nothing to find in them.

    Its precision is then no number, with which every comparison would pass.
    """
    before = measure_hand_labelled(old_bundle, held_out)
    if math.isnan(before):
        return None
    return DriftComparison(
        measure_hand_labelled(old_bundle, clean), before, measure_hand_labelled(new_bundle, held_out)
    )


def measure_precision(model: BoxesBundle, split: Split) -> MeanAveragePrecision:
    """Return the mean average precision of a detector on a split."""
    return compute_precision(judge_split(find_in_split(model.run_engine, split), split))


def label_shift_rejection_reason(
    clean_pair: tuple[float, float], drifted_pairs: list[tuple[float, float]]
) -> str | None:
    """Return why a model adapted to new class shares is refused; None if it passes.

    It must gain at least as much under the new shares as it loses under the old ones.
    """
    lost, gained = clean_pair[0] - clean_pair[1], min(after - before for before, after in drifted_pairs)
    return (
        None
        if gained >= max(lost, 0)
        else f"{lost:.2%} accuracy lost under the old class shares, but only {gained:.2%} gained under the new ones"
    )
