"""The models of a replica by name, each with the versions that answer for it, swapped between batches."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from equipoise import bundle, store
from services.limits import Limits
from services.pictures import decoded
from services.refused import Refused
from services.turns import Turns

GOLDEN = 16  # pictures of the reference that a bundle must answer as it did when it was published
TOLERANCE = 1e-3  # of the largest score: another processor rounds otherwise, another model differs by more


class Wanted(BaseModel):
    """Which bundles answer for a model's name."""

    model_config = ConfigDict(extra="forbid")

    bundle: str
    canary: str | None = None
    """a bundle that answers a share of the requests"""
    share: float = Field(0.1, ge=0, le=1)
    engine: str | None = None
    """instead of the bundle's own: for comparisons"""


@dataclass(frozen=True)
class Version:
    """A loaded bundle."""

    bundle: bundle.Bundle
    path: str
    id: str


@dataclass(frozen=True)
class Said:
    """What a version answers to one request, which may hold several pictures."""

    labels: list[str]
    scores: Tensor
    features: Tensor
    version: Version


@dataclass(frozen=True, eq=False)
class Asked:
    """Pictures of one request: encoded, or a batch as a tensor."""

    pictures: tuple[bytes, ...] | Tensor
    version: Version


@dataclass(frozen=True, eq=False)
class Batch:
    """What a version was given at once, and what it said."""

    version: Version
    pictures: Tensor
    logits: Tensor
    features: Tensor


@dataclass(eq=False)
class Model:
    """One name, and the versions that answer for it."""

    name: str
    limits: Limits
    loop: asyncio.AbstractEventLoop
    watch: Callable[[str, Batch], None]
    current: Version
    previous: Version | None = None
    canary: Version | None = None
    share: float = 0.0
    done: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = Turns(self._computed, self._after, self.limits.batch, self.limits.waiting, self.name, self.loop)

    def versions(self) -> dict[str, Version]:
        """Its versions, by what they are for."""
        roles = ("current", "previous", "canary")
        return {role: version for role in roles if (version := getattr(self, role)) is not None}

    async def answer(self, pictures: tuple[bytes, ...] | Tensor) -> Said:
        """What the model says of the pictures of a request."""
        canary = self.canary
        chosen = canary if canary is not None and random.random() < self.share else self.current  # noqa: S311
        said: Said = await self.turns.answer(Asked(pictures, chosen), self.limits.wait_seconds)
        return said

    def _computed(self, asked: Sequence[Asked]) -> list[Any]:
        """Of each request what its version says, or why it is refused."""
        given = [self._pictures(one) for one in asked]
        answers: list[Any] = list(given)
        for version in dict.fromkeys(one.version for one in asked):
            places = [i for i, one in enumerate(asked) if one.version is version and isinstance(given[i], Tensor)]
            for some in together(places, [len(given[i]) for i in places], self.limits.batch):
                for i, said in zip(some, self._said(version, [given[i] for i in some]), strict=True):
                    answers[i] = said
        return answers

    def _pictures(self, asked: Asked) -> Any:
        """A request's pictures as a tensor, or why they cannot be."""
        if isinstance(asked.pictures, Tensor):
            return asked.pictures
        try:
            shape, most = asked.version.bundle.shape, self.limits.pixels
            return torch.stack([decoded(one, shape, most) for one in asked.pictures])
        except Refused as refused:
            return refused

    def _said(self, version: Version, parts: list[Tensor]) -> list[Said]:
        """What a version says of several requests at once."""
        pictures = parts[0] if len(parts) == 1 else torch.cat(parts)
        logits, features = version.bundle.run(pictures)
        scores, places = version.bundle.scores(logits), logits.argmax(1).tolist()
        labels = [version.bundle.classes[place] for place in places]
        self.done.append(Batch(version, pictures, logits, features))
        sizes = [len(part) for part in parts]
        ends = np.cumsum(sizes)
        return [
            Said(labels[end - size : end], scores[end - size : end], features[end - size : end], version)
            for end, size in zip(ends.tolist(), sizes, strict=True)
        ]

    def _after(self) -> None:
        """Once the requests of a batch are answered."""
        while self.done:
            batch = self.done.pop()
            self.watch(self.name, batch)


def together(places: list[int], sizes: list[int], most: int) -> list[list[int]]:
    """Requests in a row that hold up to `most` pictures together; one may hold more by itself."""
    groups: list[list[int]] = []
    held = most
    for place, size in zip(places, sizes, strict=True):
        if held + size > most:
            groups.append([])
            held = 0
        groups[-1].append(place)
        held += size
    return groups


class Models:
    """All models of a replica."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop, watch: Callable[[str, Batch], None]) -> None:
        """`watch` is told of every batch, with its model's name, once its requests are answered."""
        self.limits = limits
        self.loop = loop
        self.watch = watch
        self.not_loaded: str | None = None
        self.held: dict[str, Model] = {}
        self.loaded: dict[tuple[str, str | None], Version] = {}

    def named(self, name: str | None) -> Model:
        """A model by its name; the only one if none is given."""
        if name is None and len(self.held) == 1:
            return next(iter(self.held.values()))
        there = ", ".join(self.held) or "none yet"
        if name is None:
            raise Refused(404, f"there are several models: ask for one of {there}", "unknown model")
        if name not in self.held:
            raise Refused(404, f"there is no model {name[:80]!r}: there are {there}", "unknown model")
        return self.held[name]

    def apply(self, wanted: Mapping[str, Wanted]) -> None:
        """Load what is new, and only then swap: a bundle that cannot be loaded leaves all as it was."""
        loaded = {name: self._versions(one) for name, one in wanted.items()}
        for name, (current, canary) in loaded.items():
            self._swap(name, current, canary, wanted[name].share)
        for name in [*self.held]:
            if name not in wanted:
                self.held.pop(name).turns.close()
        kept = {version for model in self.held.values() for version in model.versions().values()}
        self.loaded = {key: version for key, version in self.loaded.items() if version in kept}

    def _swap(self, name: str, current: Version, canary: Version | None, share: float) -> None:
        model = self.held.get(name)
        if model is None:
            self.held[name] = Model(name, self.limits, self.loop, self.watch, current, None, canary, share)
            return
        if model.current is not current:
            model.previous, model.current = model.current, current
        model.canary, model.share = canary, share

    def _versions(self, wanted: Wanted) -> tuple[Version, Version | None]:
        """What answers, and the canary."""
        current = self._version(wanted.bundle, wanted.engine)
        if wanted.canary is None:
            return current, None
        canary = self._version(wanted.canary, wanted.engine)
        if (canary.bundle.shape, canary.bundle.classes) != (current.bundle.shape, current.bundle.classes):
            raise ValueError(f"{canary.path} takes other pictures or knows other classes than {current.path}")
        return current, canary

    def _version(self, path: str, engine: str | None) -> Version:
        """A bundle, loaded anew only if it is another than before."""
        folder = store.local(path)
        key = (bundle.checked(folder)["digest"], engine)
        if key not in self.loaded:
            found = bundle.Bundle(folder, engine)
            require_golden(found)
            self.loaded[key] = Version(found, path, key[0][:12])
        return self.loaded[key]


def require_golden(found: bundle.Bundle) -> None:
    """Refuse a bundle that does not say here what it said where it was published."""
    kept = found.reference()
    pictures = torch.from_numpy(kept["pictures"][:GOLDEN])
    logits, _ = found.run(pictures)
    expected = kept["logits"][kept["places"][:GOLDEN]]
    apart = float(np.abs(logits.numpy() - expected).max() / max(np.abs(expected).max(), 1e-12))
    if apart > TOLERANCE:
        raise ValueError(f"{found.folder} answers otherwise than when it was published, by {apart:.1e}: publish again")
