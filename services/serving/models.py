"""The models of a replica by name, each with the versions that answer for it, swapped between batches."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from equipoise.bundle import bundle, manifest
from equipoise.storage import atomic as store
from services.http import errors
from services.http.errors import Refused
from services.http.image_decoding import decoded
from services.limits import Limits
from services.serving.batching import Turns
from services.serving.model_versions import Version, Wanted, reference, require_golden

SMALL = 32 << 10  # bytes of an encoded picture


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
    pair: "tuple[Version, Version] | None" = None
    """the current version and another: the one that does not answer is asked too, once the other has answered"""
    source: str | None = None
    """where the client says that its pictures come from"""


@dataclass(frozen=True, eq=False)
class Batch:
    """What a version was given at once, and what it said."""

    version: Version
    pictures: Tensor
    logits: Tensor
    features: Tensor
    sources: list[str | None]
    """of each picture"""


@dataclass(frozen=True, eq=False)
class Pair:
    """What two versions say of the same pictures."""

    current: Said
    other: Said


class Watcher(Protocol):
    """Is told what models did, once their requests are answered."""

    def batch(self, model: str, batch: Batch) -> None:
        """A version was given pictures."""

    def pair(self, model: str, pair: Pair) -> None:
        """Two versions were given the same."""


@dataclass(eq=False)
class Model:
    """One name, and the versions that answer for it."""

    name: str
    limits: Limits
    loop: asyncio.AbstractEventLoop
    watcher: Watcher
    current: Version
    previous: Version | None = None
    canary: Version | None = None
    shadow: Version | None = None
    share: float = 0.0
    done: list[Batch] = field(default_factory=list)
    again: list[tuple[Asked, Tensor, Said]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = Turns(
            self._computed, self._after, self.limits.batch, self.limits.waiting, self.name, self.loop, small
        )

    def versions(self) -> dict[str, Version]:
        """Its versions, by what they are for."""
        roles = ("current", "previous", "canary", "shadow")
        return {role: version for role in roles if (version := getattr(self, role)) is not None}

    async def answer(self, pictures: tuple[bytes, ...] | Tensor, source: str | None = None) -> Said:
        """What the model says of the pictures of a request."""
        asked = Asked(pictures, self.current, None, source)
        if (other := self.canary or self.shadow) and random.random() < self.share:  # noqa: S311
            asked = Asked(pictures, self.canary or self.current, (self.current, other), source)
        said: Said = await self.turns.answer(asked, self.limits.wait_seconds)
        return said

    def _computed(self, asked: Sequence[Asked]) -> list[Any]:
        """Of each request what its version says, or why it is refused."""
        given = [self._pictures(one) for one in asked]
        answers: list[Any] = list(given)
        for version in dict.fromkeys(one.version for one in asked):
            places = [i for i, one in enumerate(asked) if one.version is version and isinstance(given[i], Tensor)]
            for some in together(places, [len(given[i]) for i in places], self.limits.batch):
                sources = [asked[i].source for i in some]
                for i, said in zip(some, self._said(version, [given[i] for i in some], sources), strict=True):
                    answers[i] = said
                    if asked[i].pair is not None:
                        self.again.append((asked[i], given[i], said))
        return answers

    def _pictures(self, asked: Asked) -> Any:
        """A request's pictures as a tensor, or why they cannot be."""
        if isinstance(asked.pictures, Tensor):
            return asked.pictures
        try:
            shape, most = asked.version.bundle.shape, self.limits.pixels
            pictures = [decoded(one, shape, most) for one in asked.pictures]
        except Refused as refused:
            return refused
        return pictures[0][None] if len(pictures) == 1 else torch.stack(pictures)

    def _said(self, version: Version, parts: list[Tensor], sources: list[str | None]) -> list[Said]:
        """What a version says of several requests at once."""
        pictures = parts[0] if len(parts) == 1 else torch.cat(parts)  # whose channels may come last: the quicker way
        logits, features = version.bundle.run(pictures)
        each = [source for source, part in zip(sources, parts, strict=True) for _ in range(len(part))]
        self.done.append(Batch(version, pictures, logits, features, each))
        return said(version, logits, features, [len(part) for part in parts])

    def _after(self) -> None:
        """Once the requests of a batch are answered."""
        while self.done:
            self.watcher.batch(self.name, self.done.pop())
        while self.again:
            self.watcher.pair(self.name, paired(*self.again.pop()))


def small(asked: Asked) -> bool:
    """Whether pictures are decoded in a moment."""
    pictures = asked.pictures
    return isinstance(pictures, Tensor) or (len(pictures) == 1 and len(pictures[0]) <= SMALL)


def paired(asked: Asked, pictures: Tensor, answered: Said) -> Pair:
    """Two versions' words on the same pictures. Those who wait for their turn wait for this too."""
    if asked.pair is None:
        raise ValueError("no other version was to be asked")
    one, other = (
        answered if version is answered.version else said(version, *version.bundle.run(pictures), [len(pictures)])[0]
        for version in asked.pair
    )
    return Pair(one, other)


def said(version: Version, logits: Tensor, features: Tensor, sizes: list[int]) -> list[Said]:
    """What a version's output says of requests with so many pictures each."""
    scores, places = version.bundle.scores(logits), logits.argmax(1).tolist()
    labels = [version.bundle.classes[place] for place in places]
    return [
        Said(labels[end - size : end], scores[end - size : end], features[end - size : end], version)
        for end, size in zip(accumulate(sizes), sizes, strict=True)
    ]


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

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop, watcher: Watcher, drift: bool = True) -> None:
        self.drift = drift
        """whether requests are held against a reference"""
        self.limits = limits
        self.loop = loop
        self.watcher = watcher
        self.not_loaded: str | None = None
        self.held: dict[str, Model] = {}
        self.loaded: dict[tuple[str, str | None], Version] = {}

    def named(self, name: str | None) -> Model:
        """A model by its name; the only one if none is given."""
        if name is None and len(self.held) == 1:
            return next(iter(self.held.values()))
        there = ", ".join(self.held) or "none yet"
        if name is None:
            raise errors.model_is_not_named(there)
        if name not in self.held:
            raise errors.model_is_unknown(name, there)
        return self.held[name]

    def require_room(self) -> None:
        """Refuse a request that can only be for a model for which too many wait."""
        if len(self.held) == 1:
            next(iter(self.held.values())).turns.require_room()

    def busy(self) -> float:
        """Seconds in which there was something to compute."""
        return sum(model.turns.busy for model in self.held.values())

    def apply(self, wanted: Mapping[str, Wanted]) -> None:
        """Load what is new, and only then swap: a bundle that cannot be loaded leaves all as it was."""
        loaded = {name: self._versions(one) for name, one in wanted.items()}
        for name, versions in loaded.items():
            self._swap(name, *versions, wanted[name].share)
        for name in [*self.held]:
            if name not in wanted:
                self.held.pop(name).turns.close()
        kept = {version for model in self.held.values() for version in model.versions().values()}
        self.loaded = {key: version for key, version in self.loaded.items() if version in kept}

    def _swap(self, name: str, current: Version, canary: Version | None, shadow: Version | None, share: float) -> None:
        model = self.held.get(name)
        if model is None:
            model = self.held[name] = Model(name, self.limits, self.loop, self.watcher, current)
        if model.current is not current:
            model.previous, model.current = model.current, current
        model.canary, model.shadow, model.share = canary, shadow, share

    def _versions(self, wanted: Wanted) -> tuple[Version, Version | None, Version | None]:
        """What answers, the canary and the shadow."""
        current = self._version(wanted.bundle, wanted.engine)
        canary, shadow = (self._beside(current, path, wanted.engine) for path in (wanted.canary, wanted.shadow))
        return current, canary, shadow

    def _beside(self, current: Version, path: str | None, engine: str | None) -> Version | None:
        """A version for the same requests."""
        if path is None:
            return None
        found = self._version(path, engine)
        if (found.bundle.shape, found.bundle.classes) != (current.bundle.shape, current.bundle.classes):
            raise ValueError(f"{found.path} takes other pictures or knows other classes than {current.path}")
        return found

    def _version(self, path: str, engine: str | None) -> Version:
        """A bundle, loaded anew only if it is another than before."""
        folder = store.local(path)
        key = (manifest.checked(folder)["digest"], engine)
        if key not in self.loaded:
            found = bundle.Bundle(folder, engine)
            require_golden(found)
            held = (reference(found),) if self.drift else ()
            self.loaded[key] = Version(found, path, found.version, *held)
        return self.loaded[key]


def described(model: Model) -> dict[str, Any]:
    """Which bundles answer for a model."""
    facts = {
        role: {"version": one.id, "bundle": one.path, "engine": one.bundle.engine}
        for role, one in model.versions().items()
    }
    share = model.share if model.canary or model.shadow else 0
    return {"name": model.name, "classes": model.current.bundle.classes, "share": share} | facts
