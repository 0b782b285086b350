"""Whether an adapted model may take the place of the one before."""

from pathlib import Path

import torch

from equipoise.bundle.bundle import Bundle
from equipoise.drift.adaptation.workload import (
    LABELLED_FOLDER,
    AdaptationRecipe,
    DriftCondition,
    apply_condition,
    load_base_workload,
    load_images,
    load_labelled_images,
)
from equipoise.workloads import Split

MAX_CLEAN_ACCURACY_LOSS = 0.005  # accuracy that may be lost on clean pictures
MIN_RECOVERED_SHARE = 0.5  # share of the accuracy lost by the drift, that must come back


def passes_gate(old_bundle: Bundle, new_bundle: Bundle, recipe: AdaptationRecipe, work_folder: Path) -> bool:
    """Whether the new model is better where the old one fails, and no worse where it did not."""
    base = load_base_workload(recipe, old_bundle.manifest["config"])
    few, labels = load_labelled_images(work_folder / LABELLED_FOLDER, base)
    clean = {"clean": apply_condition(base.test, recipe.before)}
    if recipe.before != DriftCondition():
        clean["at first"] = base.test
    drifted = (
        {"drifted": apply_condition(base.test, recipe.combined_condition)} if recipe.drift != DriftCondition() else {}
    )
    if recipe.train is not None and len(labels) > recipe.train:
        drifted["labelled"] = Split(few[recipe.train :], labels[recipe.train :])
    rows = {
        name: (measure_accuracy(old_bundle, one), measure_accuracy(new_bundle, one))
        for name, one in (clean | drifted).items()
    }
    for name, (before, after) in rows.items():
        print(f"{name:10} {before:7.2%} -> {after:7.2%}")
    usual, now = ([rows[name] for name in part] for part in (clean, drifted))
    why = (
        label_shift_rejection_reason(rows["clean"], now)
        if recipe.drift.weights
        else rejection_reason(rows["clean"][0], usual, now)
    )
    if why:
        print(f"refused: {why}")
    return why is None


def rejection_reason(
    clean_accuracy: float, clean_pairs: list[tuple[float, float]], drifted_pairs: list[tuple[float, float]]
) -> str | None:
    """The reason, by accuracies before and after; None if there is none. Where little was lost, none may be lost."""
    if not drifted_pairs:
        return "nothing shows the drift: label some pictures of it"
    worst = max(before - after for before, after in clean_pairs)
    if worst > MAX_CLEAN_ACCURACY_LOSS:
        return f"{worst:.2%} lost on clean pictures, where {MAX_CLEAN_ACCURACY_LOSS:.2%} may be"
    for before, after in drifted_pairs:
        lost = clean_accuracy - before
        if after - before < (
            MIN_RECOVERED_SHARE * lost if lost > MAX_CLEAN_ACCURACY_LOSS else -MAX_CLEAN_ACCURACY_LOSS
        ):
            return (
                f"{after - before:.2%} came back of {lost:.2%} that the drift "
                f"took, where {MIN_RECOVERED_SHARE:.0%} must"
            )
    return None


def measure_accuracy(model: Bundle, split: Split) -> float:
    """Accuracy."""
    pictures = load_images(split)
    called = torch.cat([model.run_engine(some)[0].argmax(1) for some in pictures.split(64)])
    return float((called == split.labels).double().mean())


def label_shift_rejection_reason(
    clean_pair: tuple[float, float], drifted_pairs: list[tuple[float, float]]
) -> str | None:
    """The same where only classes come in other shares: what is expected more costs where it comes no more."""
    lost, won = clean_pair[0] - clean_pair[1], min(after - before for before, after in drifted_pairs)
    return (
        None if won >= max(lost, 0) else f"{lost:.2%} lost with the old shares of classes, {won:.2%} won with the new"
    )
