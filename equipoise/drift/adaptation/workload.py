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

from equipoise.config import Trial
from equipoise.drift.charts.baseline import FEWEST
from equipoise.drift.corruptions import Kind, kinds
from equipoise.images.decode import read as read_picture
from equipoise.storage import atomic as store
from equipoise.workloads import Split, Workload, workload

NAME = "equipoise.drift.adaptation.workload:remedied"
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
        return self.alike[0]

    @property
    def alike(self) -> list[Kind]:
        """All that go by these names: further ways are tried at other sizes."""
        found = [one for one in kinds() if (one.cause, one.detail) == (self.cause, self.detail)]
        if not found:
            raise ValueError(f"there is no change of {self.cause} called {self.detail!r}: take it from a verdict")
        return found

    def sized(self, share: float) -> float:
        """A share of it, within what was tried; of light's temperature by equal steps of its inverse."""
        none, sizes = self.kind.none, [size for one in self.alike for size in (one.none, *one.sizes)]
        size = none + share * (self.value - none)
        if self.kind.unit == "K":
            size = 1e6 / max(1e6 / none + share * (1e6 / self.value - 1e6 / none), 1e6 / max(sizes))
        return float(min(max(size, min(sizes)), max(sizes)))


@dataclass(frozen=True)
class Regime:
    """What requests are like, beside what the model learned first."""

    changes: tuple[Change, ...] = ()
    weights: dict[str, float] | None = None
    """by class, how much oftener it comes; None if as often as ever"""

    @classmethod
    def of(cls, facts: Any) -> "Regime":
        """From plain data."""
        return cls(tuple(Change(**one) for one in facts["changes"]), facts["weights"])

    def followed(self, other: "Regime") -> "Regime":
        """Both, one after the other."""
        weights = self.weights or other.weights
        if self.weights and other.weights:
            weights = {name: value * other.weights[name] for name, value in self.weights.items()}
        return Regime((*self.changes, *other.changes), weights)


@dataclass(frozen=True)
class Remedy:
    """What a model is brought back from."""

    workload: str
    """that it learned first"""
    data: str
    drift: Regime
    """what is new"""
    before: Regime = Regime()
    """what its reference knew already, by remedies before this one"""
    train: int | None = None
    """labelled pictures to learn from, the others judge; all if not given"""

    @property
    def now(self) -> Regime:
        """What requests are like, all in all."""
        return self.before.followed(self.drift)

    def write(self, place: Path) -> None:
        """As a recipe."""
        store.write_json(place / RECIPE, asdict(self))


def read(place: Path) -> Remedy:
    """A recipe."""
    found = store.read_json(place / RECIPE)
    try:
        return Remedy(**found | {name: Regime.of(found[name]) for name in ("drift", "before")})
    except (TypeError, KeyError):
        raise ValueError(f"{place / RECIPE} is no recipe of jobs.adapt's") from None


def facts(remedy: Remedy, trial: dict[str, Any]) -> dict[str, Any]:
    """Of a bundle made by a remedy, whose recipe is gone by then."""
    origin = {"workload": remedy.workload, "data": remedy.data}
    return {"workload": remedy.workload, "trial": trial | origin, "remedy": asdict(remedy.now)}


def base(remedy: Remedy, trial: dict[str, Any]) -> Workload:
    """The workload that the model of a trial learned first."""
    return workload(Trial(**trial | {"workload": remedy.workload, "data": remedy.data, "init": None}))


def remedied(trial: Trial) -> Workload:
    """The workload of a recipe, trained and judged with and without its drift."""
    place = Path(trial.data)
    remedy = read(place)
    first = base(remedy, asdict(trial))
    few, labels = labelled(place / LABELLED, first)
    kept = len(labels) if remedy.train is None else remedy.train
    return replace(
        first,
        train=joined(*plain(first.train, remedy), *varied(first.train, remedy), repeated(few[:kept], labels[:kept])),
        validation=joined(first.validation, under(first.validation, remedy.now)),
        reference=under(first.reference, remedy.now),
        test=joined(first.test, under(first.test, remedy.now)),
        target=MOST_TARGET,
        apart=under(first.validation, remedy.now),
    )


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


def under(split: Split, regime: Regime) -> Split:
    """Pictures as requests come: under the changes, their classes in the new shares."""
    found = Split(changed(whole(split), regime.changes), split.labels)
    return found if regime.weights is None else mixed(found, list(regime.weights.values()))


def mixed(split: Split, weights: list[float]) -> Split:
    """As many of it as there are with classes in weighted shares; some twice where these would be too few to tell."""
    labels, rng = split.labels.numpy(), np.random.Generator(np.random.Philox(key=0))
    members = [rng.permutation(np.flatnonzero(labels == one)) for one in range(len(weights))]
    counts = np.array([len(one) for one in members])
    shares = counts * weights / (counts @ weights)
    total = max((counts[counts > 0] / shares[counts > 0]).min(), min(FEWEST, len(split)))
    kept = [np.resize(of, math.ceil(total * share)) for of, share in zip(members, shares, strict=True)]
    places = torch.from_numpy(np.concatenate(kept).astype(np.int64)).sort().values
    return Split(whole(split)[places], split.labels[places])


def changed(pictures: Tensor, changes: Sequence[Change], share: float = 1.0) -> Tensor:
    """Pictures under changes, in the order in which light and camera make them."""
    for change in sorted(changes, key=lambda one: ORDER.index(one.cause)):
        pictures = change.kind.change(pictures, change.sized(share))
    return pictures


def plain(split: Split, remedy: Remedy) -> list[Split]:
    """Copies without the drift: as the model learned first, and as requests came until lately."""
    if not remedy.before.changes:
        return [split] * COPIES
    lately = Split(changed(whole(split), remedy.before.changes), split.labels)
    return [split, lately] * (COPIES // 2)


def varied(split: Split, remedy: Remedy) -> list[Split]:
    """Copies under more of the drift, and under less."""
    if not remedy.drift.changes:
        return []
    lately = changed(whole(split), remedy.before.changes)
    shares = np.linspace(*SPREAD, COPIES).tolist()
    return [Split(changed(lately, remedy.drift.changes, share), split.labels) for share in shares]


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
