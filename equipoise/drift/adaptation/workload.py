"""A workload as it looks under a drift that was named: what a model is tuned on so that it works again.

--data is a folder with recipe.json, and labelled pictures of the drift in a folder a class, if there are any.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.drift.charts.baseline import MIN_REFERENCE_IMAGES
from equipoise.drift.corruptions import Corruption, all_corruptions
from equipoise.images.decode import load_image as read_picture
from equipoise.storage.atomic import read_json, write_json
from equipoise.workloads import Split, Workload, load_workload

ADAPTED_WORKLOAD = "equipoise.drift.adaptation.workload:adapted_workload"
RECIPE_FILE, LABELLED_FOLDER = "recipe.json", "labelled"
COPIES_PER_IMAGE = (
    4  # of each training picture under the drift, and as many without: fewer cost points on clean pictures
)
AMOUNT_SHARE_RANGE = (0.4, 1.4)  # of the size that was found: it is not exact, and no two days are the same
LABELLED_REPEATS = 6  # times that a labelled picture of the drift itself is shown for each other one
MAX_TARGET_METRIC = 1.0
PHYSICAL_ORDER = (
    *("geometry", "features", "reflection", "colour temperature", "tint", "exposure"),
    *("blur", "noise", "contrast", "compression"),
)
"""from the scene to the file: what the table reflects has the lamp's colour too"""


@dataclass(frozen=True)
class CorruptionAmount:
    """One cause of a drift, and how much of it."""

    cause: str
    detail: str
    value: float

    @property
    def corruption(self) -> Corruption:
        """What it does to pictures."""
        return self.matching_corruptions[0]

    @property
    def matching_corruptions(self) -> list[Corruption]:
        """All that go by these names: further ways are tried at other sizes."""
        found = [one for one in all_corruptions() if (one.cause, one.detail) == (self.cause, self.detail)]
        if not found:
            raise ValueError(f"there is no change of {self.cause} called {self.detail!r}: take it from a verdict")
        return found

    def scaled_value(self, share: float) -> float:
        """A share of it, within what was tried; of light's temperature by equal steps of its inverse."""
        none, sizes = (
            self.corruption.neutral_size,
            [size for one in self.matching_corruptions for size in (one.neutral_size, *one.sizes)],
        )
        size = none + share * (self.value - none)
        if self.corruption.unit == "K":
            size = 1e6 / max(1e6 / none + share * (1e6 / self.value - 1e6 / none), 1e6 / max(sizes))
        return float(min(max(size, min(sizes)), max(sizes)))


@dataclass(frozen=True)
class DriftCondition:
    """What requests are like, beside what the model learned first."""

    changes: tuple[CorruptionAmount, ...] = ()
    weights: dict[str, float] | None = None
    """by class, how much oftener it comes; None if as often as ever"""

    @classmethod
    def from_json(cls, facts: Any) -> "DriftCondition":
        """From plain data."""
        return cls(tuple(CorruptionAmount(**one) for one in facts["changes"]), facts["weights"])

    def followed_by(self, other: "DriftCondition") -> "DriftCondition":
        """Both, one after the other."""
        weights = self.weights or other.weights
        if self.weights and other.weights:
            weights = {name: value * other.weights[name] for name, value in self.weights.items()}
        return DriftCondition((*self.changes, *other.changes), weights)


@dataclass(frozen=True)
class AdaptationRecipe:
    """What a model is brought back from."""

    workload: str
    """that it learned first"""
    data: str
    drift: DriftCondition
    """what is new"""
    before: DriftCondition = DriftCondition()
    """what its reference knew already, by remedies before this one"""
    train: int | None = None
    """labelled pictures to learn from, the others judge; all if not given"""

    @property
    def combined_condition(self) -> DriftCondition:
        """What requests are like, all in all."""
        return self.before.followed_by(self.drift)

    def write(self, folder: Path) -> None:
        """As a recipe."""
        write_json(folder / RECIPE_FILE, asdict(self))


def read_recipe(folder: Path) -> AdaptationRecipe:
    """A recipe."""
    found = read_json(folder / RECIPE_FILE)
    try:
        return AdaptationRecipe(**found | {name: DriftCondition.from_json(found[name]) for name in ("drift", "before")})
    except (TypeError, KeyError):
        raise ValueError(f"{folder / RECIPE_FILE} is no recipe of jobs.adapt's") from None


def build_bundle_facts(recipe: AdaptationRecipe, trial: dict[str, Any]) -> dict[str, Any]:
    """Of a bundle made by a remedy, whose recipe is gone by then."""
    origin = {"workload": recipe.workload, "data": recipe.data}
    return {"workload": recipe.workload, "config": trial | origin, "remedy": asdict(recipe.combined_condition)}


def load_base_workload(recipe: AdaptationRecipe, trial: dict[str, Any]) -> Workload:
    """The workload that the model of a trial learned first."""
    return load_workload(TrainConfig(**trial | {"workload": recipe.workload, "data": recipe.data, "init_from": None}))


def adapted_workload(config: TrainConfig) -> Workload:
    """The workload of a recipe, trained and judged with and without its drift."""
    place = Path(config.data)
    remedy = read_recipe(place)
    first = load_base_workload(remedy, asdict(config))
    few, labels = load_labelled_images(place / LABELLED_FOLDER, first)
    kept = len(labels) if remedy.train is None else remedy.train
    return replace(
        first,
        train=concat_splits(
            *clean_copies(first.train, remedy),
            *corrupted_copies(first.train, remedy),
            repeat_labelled_images(few[:kept], labels[:kept]),
        ),
        validation=concat_splits(first.validation, apply_condition(first.validation, remedy.combined_condition)),
        reference=apply_condition(first.reference, remedy.combined_condition),
        test=concat_splits(first.test, apply_condition(first.test, remedy.combined_condition)),
        target=MAX_TARGET_METRIC,
        false_alarm_split=apply_condition(first.validation, remedy.combined_condition),
    )


def load_labelled_images(folder: Path, base_workload: Workload) -> tuple[Tensor, Tensor]:
    """Pictures of the drift itself, in an order of chance that is always the same."""
    shape = tuple(base_workload.train.pictures[0].shape)
    found = [
        (path, of) for of, name in enumerate(base_workload.classes) for path in sorted((folder / name).glob("*.png"))
    ]
    pictures = torch.empty(len(found), *shape, dtype=torch.uint8)
    for row, (path, _) in enumerate(found):
        pictures[row] = read_picture(path, shape)
    known = torch.tensor([of for _, of in found], dtype=torch.int64)
    order = torch.from_numpy(np.random.Generator(np.random.Philox(key=0)).permutation(len(known)))
    return pictures[order], known[order]


def apply_condition(split: Split, condition: DriftCondition) -> Split:
    """Pictures as requests come: under the changes, their classes in the new shares."""
    found = Split(apply_corruptions(load_images(split), condition.changes), split.labels)
    return found if condition.weights is None else resample_classes(found, list(condition.weights.values()))


def resample_classes(split: Split, weights: list[float]) -> Split:
    """As many of it as there are with classes in weighted shares; some twice where these would be too few to tell."""
    labels, rng = split.labels.numpy(), np.random.Generator(np.random.Philox(key=0))
    members = [rng.permutation(np.flatnonzero(labels == one)) for one in range(len(weights))]
    counts = np.array([len(one) for one in members])
    shares = counts * weights / (counts @ weights)
    total = max((counts[counts > 0] / shares[counts > 0]).min(), min(MIN_REFERENCE_IMAGES, len(split)))
    kept = [np.resize(of, math.ceil(total * share)) for of, share in zip(members, shares, strict=True)]
    places = torch.from_numpy(np.concatenate(kept).astype(np.int64)).sort().values
    return Split(load_images(split)[places], split.labels[places])


def apply_corruptions(pictures: Tensor, amounts: Sequence[CorruptionAmount], share: float = 1.0) -> Tensor:
    """Pictures under changes, in the order in which light and camera make them."""
    for change in sorted(amounts, key=lambda one: PHYSICAL_ORDER.index(one.cause)):
        pictures = change.corruption.apply(pictures, change.scaled_value(share))
    return pictures


def clean_copies(split: Split, recipe: AdaptationRecipe) -> list[Split]:
    """Copies without the drift: as the model learned first, and as requests came until lately."""
    if not recipe.before.changes:
        return [split] * COPIES_PER_IMAGE
    lately = Split(apply_corruptions(load_images(split), recipe.before.changes), split.labels)
    return [split, lately] * (COPIES_PER_IMAGE // 2)


def corrupted_copies(split: Split, recipe: AdaptationRecipe) -> list[Split]:
    """Copies under more of the drift, and under less."""
    if not recipe.drift.changes:
        return []
    lately = apply_corruptions(load_images(split), recipe.before.changes)
    shares = np.linspace(*AMOUNT_SHARE_RANGE, COPIES_PER_IMAGE).tolist()
    return [Split(apply_corruptions(lately, recipe.drift.changes, share), split.labels) for share in shares]


def repeat_labelled_images(pictures: Tensor, labels: Tensor) -> Split:
    """Few pictures, shown often."""
    return Split(pictures.repeat(LABELLED_REPEATS, 1, 1, 1), labels.repeat(LABELLED_REPEATS))


def concat_splits(*splits: Split) -> Split:
    """All of them."""
    return Split(torch.cat([load_images(part) for part in splits]), torch.cat([part.labels for part in splits]))


def load_images(split: Split) -> Tensor:
    """A split's pictures, in memory."""
    held = split.pictures
    return held if isinstance(held, Tensor) else torch.stack([held[place] for place in range(len(split))])
