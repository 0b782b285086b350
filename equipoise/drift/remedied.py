"""A workload as it looks under a drift that was named: what a model is tuned on so that it works again.

--data is a folder with recipe.json, and labelled pictures of the drift in a folder a class, if there are any.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise import store
from equipoise.drift.causes import Kind, kinds
from equipoise.picture import read as read_picture
from equipoise.trial import Trial
from equipoise.workloads import Split, Workload, workload

NAME = "equipoise.drift.remedied:remedied"
RECIPE, LABELLED = "recipe.json", "labelled"
COPIES = 4  # of each training picture under the drift, and as many without: fewer cost points on clean pictures
SPREAD = (0.4, 1.4)  # of the size that was found: it is not exact, and no two days are the same
AGAIN = 6  # times that a labelled picture of the drift itself is shown for each other one
MOST_TARGET = 1.0
ORDER = (
    *("geometry", "features", "reflection", "colour temperature", "tint", "exposure"),
    *("blur", "noise", "contrast", "compression"),
)
"""from the scene to the file: what the table reflects has the lamp's colour too"""


@dataclass(frozen=True)
class Change:
    """One cause of a drift, and how much of it."""

    cause: str
    detail: str
    value: float

    @property
    def kind(self) -> Kind:
        """What it does to pictures."""
        found = [one for one in kinds() if (one.cause, one.detail) == (self.cause, self.detail)]
        if not found:
            raise ValueError(f"there is no change of {self.cause} called {self.detail!r}: take it from a verdict")
        return found[0]

    def sized(self, share: float) -> float:
        """A share of it; of light's temperature by equal steps of its inverse, which look equal."""
        none = self.kind.none
        if self.kind.unit == "K":
            return float(1e6 / (1e6 / none + share * (1e6 / self.value - 1e6 / none)))
        return none + share * (self.value - none)


def remedied(trial: Trial) -> Workload:
    """The workload of a recipe, trained and judged with and without its drift."""
    place = Path(trial.data)
    recipe = read(place)
    base = workload(replace(trial, workload=recipe["workload"], data=recipe["data"], init=None))
    changes = [Change(**one) for one in recipe["changes"]]
    few, labels = labelled(place / LABELLED, base)
    kept = recipe.get("train", len(labels))
    return replace(
        base,
        name=base.name,
        train=joined(*[base.train] * COPIES, varied(base.train, changes), repeated(few[:kept], labels[:kept])),
        validation=joined(base.validation, drifted(base.validation, changes)),
        reference=drifted(base.reference, changes),
        test=joined(base.test, drifted(base.test, changes)),
        target=MOST_TARGET,
    )


def read(place: Path) -> dict[str, Any]:
    """A recipe."""
    found = store.read_json(place / RECIPE)
    if not isinstance(found, dict) or not {"workload", "data", "changes"} <= found.keys():
        raise ValueError(f"{place / RECIPE} is no recipe of jobs.adapt's")
    return found


def labelled(place: Path, base: Workload) -> tuple[Tensor, Tensor]:
    """Pictures of the drift itself, in an order of chance that is always the same."""
    shape = tuple(base.train.pictures[0].shape)
    found = [(path, of) for of, name in enumerate(base.classes) for path in sorted((place / name).glob("*.png"))]
    pictures = torch.empty(len(found), *shape, dtype=torch.uint8)
    for row, (path, _) in enumerate(found):
        pictures[row] = read_picture(path, shape)
    known = torch.tensor([of for _, of in found], dtype=torch.int64)
    order = torch.from_numpy(np.random.Generator(np.random.Philox(key=0)).permutation(len(known)))
    return pictures[order], known[order]


def drifted(split: Split, changes: list[Change], share: float = 1.0) -> Split:
    """The same pictures under the drift."""
    return Split(changed(whole(split), changes, share), split.labels)


def changed(pictures: Tensor, changes: list[Change], share: float = 1.0) -> Tensor:
    """Pictures under changes, in the order in which light and camera make them."""
    for change in sorted(changes, key=lambda one: ORDER.index(one.cause)):
        pictures = change.kind.change(pictures, change.sized(share))
    return pictures


def varied(split: Split, changes: list[Change]) -> Split:
    """Copies under more of the drift, and under less."""
    shares = np.linspace(*SPREAD, COPIES).tolist() if changes else []
    parts = [drifted(split, changes, share) for share in shares]
    return joined(*parts) if parts else Split(whole(split)[:0], split.labels[:0])


def repeated(pictures: Tensor, labels: Tensor) -> Split:
    """Few pictures, shown often."""
    return Split(pictures.repeat(AGAIN, 1, 1, 1), labels.repeat(AGAIN))


def joined(*parts: Split) -> Split:
    """All of them."""
    return Split(torch.cat([whole(part) for part in parts]), torch.cat([part.labels for part in parts]))


def whole(split: Split) -> Tensor:
    """A split's pictures, in memory."""
    held = split.pictures
    return held if isinstance(held, Tensor) else torch.stack([held[place] for place in range(len(split))])
