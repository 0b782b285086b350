"""The models of a replica by name, each with the versions that answer for it, swapped between batches."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from equipoise.bundle.bundle import Bundle
from equipoise.bundle.manifest import verify_bundle
from equipoise.storage.atomic import download_folder
from services.http.errors import RequestRejected, model_is_not_named, model_is_unknown
from services.http.image_decoding import decode_image
from services.limits import Limits
from services.serving.batching import DynamicBatcher
from services.serving.model_versions import LoadedVersion, ModelSpec, load_reference_profile, verify_golden_outputs

MAX_INLINE_IMAGE_BYTES = 32 << 10  # bytes of an encoded picture


@dataclass(frozen=True)
class ModelOutput:
    """What a version answers to one request, which may hold several pictures."""

    labels: list[str]
    scores: Tensor
    features: Tensor
    version: LoadedVersion


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """Pictures of one request: encoded, or a batch as a tensor."""

    images: tuple[bytes, ...] | Tensor
    version: LoadedVersion
    compared_versions: "tuple[LoadedVersion, LoadedVersion] | None" = None
    """the current version and another: the one that does not answer is asked too, once the other has answered"""
    source: str | None = None
    """where the client says that its pictures come from"""


@dataclass(frozen=True, eq=False)
class ComputedBatch:
    """What a version was given at once, and what it said."""

    version: LoadedVersion
    images: Tensor
    logits: Tensor
    features: Tensor
    sources: list[str | None]
    """of each picture"""


@dataclass(frozen=True, eq=False)
class ComparedOutputs:
    """What two versions say of the same pictures."""

    current: ModelOutput
    other: ModelOutput


class InferenceListener(Protocol):
    """Is told what models did, once their requests are answered."""

    def on_batch(self, model: str, batch: ComputedBatch) -> None:
        """A version was given pictures."""

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Two versions were given the same."""


@dataclass(eq=False)
class Model:
    """One name, and the versions that answer for it."""

    name: str
    limits: Limits
    loop: asyncio.AbstractEventLoop
    listener: InferenceListener
    current: LoadedVersion
    previous: LoadedVersion | None = None
    canary: LoadedVersion | None = None
    shadow: LoadedVersion | None = None
    share: float = 0.0
    computed_batches: list[ComputedBatch] = field(default_factory=list)
    pending_comparisons: list[tuple[InferenceRequest, Tensor, ModelOutput]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batcher = DynamicBatcher(
            self._compute_requests,
            self._notify_listener,
            self.limits.batch,
            self.limits.waiting,
            self.name,
            self.loop,
            can_decode_inline,
        )

    def versions_by_role(self) -> dict[str, LoadedVersion]:
        """Its versions, by what they are for."""
        roles = ("current", "previous", "canary", "shadow")
        return {role: version for role in roles if (version := getattr(self, role)) is not None}

    async def predict(self, images: tuple[bytes, ...] | Tensor, source: str | None = None) -> ModelOutput:
        """What the model says of the pictures of a request."""
        asked = InferenceRequest(images, self.current, None, source)
        if (other := self.canary or self.shadow) and random.random() < self.share:  # noqa: S311
            asked = InferenceRequest(images, self.canary or self.current, (self.current, other), source)
        said: ModelOutput = await self.batcher.submit(asked, self.limits.wait_seconds)
        return said

    def _compute_requests(self, requests: Sequence[InferenceRequest]) -> list[Any]:
        """Of each request what its version says, or why it is refused."""
        given = [self._decode_images(one) for one in requests]
        answers: list[Any] = list(given)
        for version in dict.fromkeys(one.version for one in requests):
            places = [i for i, one in enumerate(requests) if one.version is version and isinstance(given[i], Tensor)]
            for some in pack_batches(places, [len(given[i]) for i in places], self.limits.batch):
                sources = [requests[i].source for i in some]
                for i, said in zip(some, self._run_version(version, [given[i] for i in some], sources), strict=True):
                    answers[i] = said
                    if requests[i].compared_versions is not None:
                        self.pending_comparisons.append((requests[i], given[i], said))
        return answers

    def _decode_images(self, request: InferenceRequest) -> Any:
        """A request's pictures as a tensor, or why they cannot be."""
        if isinstance(request.images, Tensor):
            return request.images
        try:
            shape, most = request.version.bundle.shape, self.limits.pixels
            pictures = [decode_image(one, shape, most) for one in request.images]
        except RequestRejected as refused:
            return refused
        return pictures[0][None] if len(pictures) == 1 else torch.stack(pictures)

    def _run_version(
        self, version: LoadedVersion, image_batches: list[Tensor], sources: list[str | None]
    ) -> list[ModelOutput]:
        """What a version says of several requests at once."""
        pictures = (
            image_batches[0] if len(image_batches) == 1 else torch.cat(image_batches)
        )  # whose channels may come last: the quicker way
        logits, features = version.bundle.run_engine(pictures)
        each = [source for source, part in zip(sources, image_batches, strict=True) for _ in range(len(part))]
        self.computed_batches.append(ComputedBatch(version, pictures, logits, features, each))
        return split_outputs(version, logits, features, [len(part) for part in image_batches])

    def _notify_listener(self) -> None:
        """Once the requests of a batch are answered."""
        while self.computed_batches:
            self.listener.on_batch(self.name, self.computed_batches.pop())
        while self.pending_comparisons:
            self.listener.on_comparison(self.name, compare_versions(*self.pending_comparisons.pop()))


def can_decode_inline(request: InferenceRequest) -> bool:
    """Whether pictures are decoded in a moment."""
    pictures = request.images
    return isinstance(pictures, Tensor) or (len(pictures) == 1 and len(pictures[0]) <= MAX_INLINE_IMAGE_BYTES)


def compare_versions(request: InferenceRequest, images: Tensor, known_output: ModelOutput) -> ComparedOutputs:
    """Two versions' words on the same pictures. Those who wait for their turn wait for this too."""
    if request.compared_versions is None:
        raise ValueError("no other version was to be asked")
    one, other = (
        known_output
        if version is known_output.version
        else split_outputs(version, *version.bundle.run_engine(images), [len(images)])[0]
        for version in request.compared_versions
    )
    return ComparedOutputs(one, other)


def split_outputs(
    version: LoadedVersion, logits: Tensor, features: Tensor, image_counts: list[int]
) -> list[ModelOutput]:
    """What a version's output says of requests with so many pictures each."""
    scores, places = version.bundle.probabilities(logits), logits.argmax(1).tolist()
    labels = [version.bundle.classes[place] for place in places]
    return [
        ModelOutput(labels[end - size : end], scores[end - size : end], features[end - size : end], version)
        for end, size in zip(accumulate(image_counts), image_counts, strict=True)
    ]


def pack_batches(indices: list[int], image_counts: list[int], max_images: int) -> list[list[int]]:
    """Requests in a row that hold up to `most` pictures together; one may hold more by itself."""
    groups: list[list[int]] = []
    held = max_images
    for place, size in zip(indices, image_counts, strict=True):
        if held + size > max_images:
            groups.append([])
            held = 0
        groups[-1].append(place)
        held += size
    return groups


class ModelRegistry:
    """All models of a replica."""

    def __init__(
        self, limits: Limits, loop: asyncio.AbstractEventLoop, listener: InferenceListener, drift_enabled: bool = True
    ) -> None:
        self.drift_enabled = drift_enabled
        """whether requests are held against a reference"""
        self.limits = limits
        self.loop = loop
        self.listener = listener
        self.load_error: str | None = None
        self.models: dict[str, Model] = {}
        self.loaded_versions: dict[tuple[str, str | None], LoadedVersion] = {}

    def find_model(self, name: str | None) -> Model:
        """A model by its name; the only one if none is given."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        there = ", ".join(self.models) or "none yet"
        if name is None:
            raise model_is_not_named(there)
        if name not in self.models:
            raise model_is_unknown(name, there)
        return self.models[name]

    def require_room(self) -> None:
        """Refuse a request that can only be for a model for which too many wait."""
        if len(self.models) == 1:
            next(iter(self.models.values())).batcher.reject_if_full()

    def busy_seconds(self) -> float:
        """Seconds in which there was something to compute."""
        return sum(model.batcher.busy_seconds for model in self.models.values())

    def apply_specs(self, model_specs: Mapping[str, ModelSpec]) -> None:
        """Load what is new, and only then swap: a bundle that cannot be loaded leaves all as it was."""
        loaded = {name: self._load_spec(one) for name, one in model_specs.items()}
        for name, versions in loaded.items():
            self._swap_versions(name, *versions, model_specs[name].share)
        for name in [*self.models]:
            if name not in model_specs:
                self.models.pop(name).batcher.close()
        kept = {version for model in self.models.values() for version in model.versions_by_role().values()}
        self.loaded_versions = {key: version for key, version in self.loaded_versions.items() if version in kept}

    def _swap_versions(
        self,
        name: str,
        current: LoadedVersion,
        canary: LoadedVersion | None,
        shadow: LoadedVersion | None,
        share: float,
    ) -> None:
        model = self.models.get(name)
        if model is None:
            model = self.models[name] = Model(name, self.limits, self.loop, self.listener, current)
        if model.current is not current:
            model.previous, model.current = model.current, current
        model.canary, model.shadow, model.share = canary, shadow, share

    def _load_spec(self, spec: ModelSpec) -> tuple[LoadedVersion, LoadedVersion | None, LoadedVersion | None]:
        """What answers, the canary and the shadow."""
        current = self._load_version(spec.bundle, spec.engine)
        canary, shadow = (self._load_comparable(current, path, spec.engine) for path in (spec.canary, spec.shadow))
        return current, canary, shadow

    def _load_comparable(self, current: LoadedVersion, path: str | None, engine: str | None) -> LoadedVersion | None:
        """A version for the same requests."""
        if path is None:
            return None
        found = self._load_version(path, engine)
        if (found.bundle.shape, found.bundle.classes) != (current.bundle.shape, current.bundle.classes):
            raise ValueError(f"{found.path} takes other pictures or knows other classes than {current.path}")
        return found

    def _load_version(self, path: str, engine: str | None) -> LoadedVersion:
        """A bundle, loaded anew only if it is another than before."""
        folder = download_folder(path)
        key = (verify_bundle(folder)["digest"], engine)
        if key not in self.loaded_versions:
            found = Bundle(folder, engine)
            verify_golden_outputs(found)
            held = (load_reference_profile(found),) if self.drift_enabled else ()
            self.loaded_versions[key] = LoadedVersion(found, path, found.version, *held)
        return self.loaded_versions[key]


def model_status(model: Model) -> dict[str, Any]:
    """Which bundles answer for a model."""
    facts = {
        role: {"version": one.id, "bundle": one.path, "engine": one.bundle.engine_name}
        for role, one in model.versions_by_role().items()
    }
    share = model.share if model.canary or model.shadow else 0
    return {"name": model.name, "classes": model.current.bundle.classes, "share": share} | facts
