"""Workload under a diagnosed drift: the data on which a model is fine-tuned so that it works again.

--data is a folder with recipe.json and, if there are any, labelled images of the drift.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.drift.adaptation.labelled_images import (
    load_labelled_images,
    make_room_for_boxes,
    pad_boxes,
    repeat_labelled_images,
)
from equipoise.drift.charts.baseline import MIN_REFERENCE_IMAGES
from equipoise.drift.corruptions import Corruption, all_corruptions
from equipoise.errors import EquipoiseError
from equipoise.number_bounds import FiniteNumber
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.storage.node_cache import fetch_data
from equipoise.workloads import BoxWorkload, ImageWorkload, Split, load_workload
from equipoise.workloads.image_workload import require_image_workload

ADAPTED_WORKLOAD = "equipoise.drift.adaptation.workload:adapted_workload"
RECIPE_FILE, LABELLED_FOLDER = "recipe.json", "labelled"
COPIES_PER_IMAGE = 4  # copies of each training image with the drift, and as many without: fewer cost clean accuracy
AMOUNT_SHARE_RANGE = (0.4, 1.4)  # times the fitted size: it is not exact, and no two days are the same
PHYSICAL_ORDER = (
    *("geometry", "features", "reflection", "colour temperature", "tint", "exposure"),
    *("blur", "noise", "contrast", "compression"),
)
"""causes from the scene to the file: light that the table reflects has the lamp's colour too"""
PictureWorkload = ImageWorkload | BoxWorkload
"""workload of images with labels or with boxes"""


@dataclass(frozen=True)
class CorruptionAmount:
    """Corruption by name and size: one cause of a drift."""

    cause: str
    """name of the cause, such as `exposure`"""
    detail: str
    """direction of the change, such as `darker`"""
    value: FiniteNumber
    """size, in the unit of the corruption"""

    def __post_init__(self) -> None:
        if not self.matching_corruptions:
            raise EquipoiseError(
                "verdict-invalid",
                f"unknown corruption {self.cause!r} with detail {self.detail!r}",
                "take both from a verdict",
            )

    @property
    def corruption(self) -> Corruption:
        """Corruption of this name, the first of several."""
        return self.matching_corruptions[0]

    @property
    def matching_corruptions(self) -> list[Corruption]:
        """All corruptions of this cause and detail: some names stand for several, with other sizes or formulas."""
        return [entry for entry in all_corruptions() if (entry.cause, entry.detail) == (self.cause, self.detail)]

    @property
    def distance_from_neutral(self) -> float:
        """Signed distance from the size at which nothing changes; of a colour temperature in mired."""
        neutral = self.corruption.neutral_size
        return 1e6 / self.value - 1e6 / neutral if self.corruption.unit == "K" else self.value - neutral

    def scaled_value(self, share: float) -> float:
        """Return the size at a share of this amount, within the sizes that are tried when a bundle is published.

        A colour temperature is scaled along its inverse, in which equal steps look alike.
        """
        neutral = self.corruption.neutral_size
        sizes = [size for entry in self.matching_corruptions for size in (entry.neutral_size, *entry.sizes)]
        size = neutral + share * (self.value - neutral)
        if self.corruption.unit == "K":
            size = 1e6 / max(1e6 / neutral + share * (1e6 / self.value - 1e6 / neutral), 1e6 / max(sizes))
        return float(min(max(size, min(sizes)), max(sizes)))


@dataclass(frozen=True)
class DriftCondition:
    """Condition of requests relative to the original training data: corruptions, and class shares."""

    changes: tuple[CorruptionAmount, ...] = ()
    """corruptions of the images, applied in physical order"""
    weights: dict[str, float] | None = None
    """ratio of the new to the old share of each class, by name; None if the shares are unchanged"""

    @classmethod
    def from_json(cls, contents: object) -> "DriftCondition":
        """Build a condition from the `remedy` in a bundle's manifest; refuse contents that are none."""
        return decode_json_value(
            contents, cls, code="bundle-invalid", problem="cannot use the remedy", remedy="publish the bundle again"
        )

    def followed_by(self, other: "DriftCondition") -> "DriftCondition":
        """Return the condition that results from this one and then another."""
        weights = self.weights or other.weights
        if self.weights and other.weights:
            weights = {name: value * other.weights[name] for name, value in self.weights.items()}
        return DriftCondition((*self.changes, *other.changes), weights)


@dataclass(frozen=True)
class AdaptationRecipe:
    """Recipe of an adaptation: the original workload, and the conditions to learn in addition."""

    workload: str
    """workload that the model learned first"""
    data: str
    """data of that workload"""
    drift: DriftCondition
    """condition that is new"""
    before: DriftCondition = DriftCondition()
    """known condition that the drift was compared with; the original one if not given"""
    known: tuple[DriftCondition, ...] = ()
    """further conditions that the model has learned from earlier adaptations"""
    train: int | None = None
    """labelled images of the drift to train on, the others are for evaluation; all if not given"""

    @property
    def combined_condition(self) -> DriftCondition:
        """Condition of requests now: the known one that the drift was compared with, and the drift."""
        return self.before.followed_by(self.drift)

    @property
    def earlier_conditions(self) -> list[DriftCondition]:
        """Conditions from earlier adaptations, each once."""
        conditions: list[DriftCondition] = []
        for condition in (self.before, *self.known):
            if condition.changes and condition not in conditions:
                conditions.append(condition)
        return conditions

    def original_config(self, config: TrainConfig) -> TrainConfig:
        """Return the options of a training by this recipe, with the workload that the model learned first."""
        return replace(config, workload=self.workload, data=self.data)

    def write(self, folder: Path) -> None:
        """Write the recipe to recipe.json in a folder."""
        write_json(folder / RECIPE_FILE, asdict(self))


def read_recipe(folder: Path) -> AdaptationRecipe:
    """Read the recipe from recipe.json in a folder."""
    path = folder / RECIPE_FILE
    return decode_json_value(
        read_json(path), AdaptationRecipe, code="file-damaged", problem=f"cannot read the recipe {path}"
    )


def load_base_workload(recipe: AdaptationRecipe, config: TrainConfig) -> PictureWorkload:
    """Load the workload that the model learned first, with the options of a training."""
    workload = load_workload(replace(recipe.original_config(config), init_from=None))
    return workload if isinstance(workload, BoxWorkload) else require_image_workload(workload, "adapt to a drift")


def adapted_workload(config: TrainConfig) -> PictureWorkload:
    """Build the workload of a recipe, with training and evaluation data both with and without its drift."""
    folder = fetch_data(config.data)
    recipe = read_recipe(folder)
    base = load_base_workload(recipe, config)
    labelled, labels = load_labelled_images(folder / LABELLED_FOLDER, base)
    if isinstance(base, BoxWorkload):
        base = make_room_for_boxes(base, labels.shape[1])
        labels = pad_boxes(labels, base.train.targets.shape[1])
    train_count = len(labels) if recipe.train is None else recipe.train
    class_shares = DriftCondition(weights=recipe.combined_condition.weights)
    return replace(
        base,
        train=concat_splits(
            *clean_copies(base.train, recipe),
            *corrupted_copies(base.train, recipe),
            repeat_labelled_images(labelled[:train_count], labels[:train_count]),
        ),
        validation=concat_conditions(base.validation, recipe),
        reference=apply_condition(base.reference, class_shares),
        test=concat_conditions(base.test, recipe),
        target=None,  # it trains its number of examples
        false_alarm_split=apply_condition(base.validation, class_shares),
    )


def concat_conditions(split: Split, recipe: AdaptationRecipe) -> Split:
    """Return a split as it is, under each condition from earlier adaptations, and under the new one."""
    conditions = [*recipe.earlier_conditions, recipe.combined_condition]
    return concat_splits(split, *(apply_condition(split, condition) for condition in conditions))


def apply_condition(split: Split, condition: DriftCondition) -> Split:
    """Return a split as requests come under a condition: corrupted, with its class shares."""
    corrupted = Split(apply_corruptions(load_images(split), condition.changes), split.targets)
    return corrupted if condition.weights is None else resample_classes(corrupted, list(condition.weights.values()))


def resample_classes(split: Split, weights: list[float]) -> Split:
    """Resample a split so that the share of each class is multiplied by its weight.

    Images repeat only where fewer than min(MIN_REFERENCE_IMAGES, len(split)) would be left.
    """
    labels, rng = split.targets.numpy(), np.random.Generator(np.random.Philox(key=0))
    members = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(weights))]
    counts = np.array([len(indices) for indices in members])
    shares = counts * weights / (counts @ weights)
    total = max((counts[counts > 0] / shares[counts > 0]).min(), min(MIN_REFERENCE_IMAGES, len(split)))
    kept = [np.resize(indices, math.ceil(total * share)) for indices, share in zip(members, shares, strict=True)]
    selected = torch.from_numpy(np.concatenate(kept).astype(np.int64)).sort().values
    return Split(load_images(split)[selected], split.targets[selected])


def apply_corruptions(pictures: Tensor, amounts: Sequence[CorruptionAmount], share: float = 1.0) -> Tensor:
    """Apply corruptions at a share of their sizes, in the order in which light and camera cause them."""
    for amount in sorted(amounts, key=lambda amount: PHYSICAL_ORDER.index(amount.cause)):
        pictures = amount.corruption.apply(pictures, amount.scaled_value(share))
    return pictures


def clean_copies(split: Split, recipe: AdaptationRecipe) -> list[Split]:
    """Return copies without the new drift: original ones in turn with ones under each earlier condition."""
    images = load_images(split) if recipe.earlier_conditions else None
    earlier = [
        Split(apply_corruptions(images, condition.changes), split.targets)
        for condition in recipe.earlier_conditions
        if images is not None
    ]
    kinds = [split, *earlier]
    return [kinds[index % len(kinds)] for index in range(max(COPIES_PER_IMAGE, len(kinds)))]


def corrupted_copies(split: Split, recipe: AdaptationRecipe) -> list[Split]:
    """Return copies with the new drift, from smaller to larger than it was measured."""
    if not recipe.drift.changes:
        return []
    before_drift = apply_corruptions(load_images(split), recipe.before.changes)
    shares = np.linspace(*AMOUNT_SHARE_RANGE, COPIES_PER_IMAGE).tolist()
    return [Split(apply_corruptions(before_drift, recipe.drift.changes, share), split.targets) for share in shares]


def concat_splits(*splits: Split) -> Split:
    """Concatenate splits into one in-memory split."""
    return Split(torch.cat([load_images(part) for part in splits]), torch.cat([part.targets for part in splits]))


def load_images(split: Split) -> Tensor:
    """Load the images of a split into one tensor."""
    images = split.inputs
    return images if isinstance(images, Tensor) else torch.stack([images[index] for index in range(len(split))])
