"""Models of a replica by name, each with its loaded versions, which are swapped between batches."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards.model_status import ModelStatus, VersionStatus
from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.folder import verify_bundle
from equipoise.bundle.manifest import Kind
from equipoise.storage.atomic import download_folder
from services.http.errors import RequestRejected, model_is_not_named, model_is_unknown
from services.limits import Limits
from services.serving.batching import DynamicBatcher, Stage, pack_batches
from services.serving.engine_parts import split_engine
from services.serving.inference import AnsweredBatch, InferenceListener, InferenceRequest, ModelOutput
from services.serving.kinds.boxes_kind import BoxesKind
from services.serving.kinds.image_kind import ImageKind, compare_versions
from services.serving.kinds.served_kind import ServedKind
from services.serving.kinds.table_kind import TableKind
from services.serving.kinds.text_kind import TextKind
from services.serving.model_versions import (
    DRIFT_DETECTION_OFF,
    LoadedVersion,
    ModelSpec,
    load_reference_profile,
    verify_golden_outputs,
)

KIND_TYPES: dict[Kind, type[ServedKind]] = {
    "image": ImageKind,
    "table": TableKind,
    "text": TextKind,
    "boxes": BoxesKind,
}


class Model:
    """Model of one name: its versions, and the batcher of its requests. It answers from `start` to `close`."""

    def __init__(
        self,
        name: str,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        listener: InferenceListener,
        current: LoadedVersion,
    ) -> None:
        self.name, self.limits, self.listener = name, limits, listener
        self.current = current
        self.previous: LoadedVersion | None = None
        self.canary: LoadedVersion | None = None
        self.shadow: LoadedVersion | None = None
        self.share = 0.0
        self.computed_batches: list[AnsweredBatch] = []
        self.pending_comparisons: list[tuple[InferenceRequest, NDArray[np.uint8], ModelOutput]] = []
        self.kind = KIND_TYPES[current.bundle.kind](limits)
        self.batcher = DynamicBatcher(
            self._compute_requests,
            self._notify_listener,
            limits.batch,
            limits.waiting,
            name,
            loop,
            self.kind.can_decode_inline,
            self._list_first_stages,
        )

    def start(self) -> None:
        """Start the thread that computes long batches."""
        self.batcher.start()

    def close(self) -> None:
        """Stop the thread after the batches that it was given."""
        self.batcher.close()

    def versions_by_role(self) -> dict[str, LoadedVersion]:
        """Return the loaded versions by role: current, previous, canary, shadow."""
        roles = ("current", "previous", "canary", "shadow")
        return {role: version for role in roles if (version := getattr(self, role)) is not None}

    async def predict(self, content: Any, source: str | None = None, is_alone: bool = False) -> Any:
        """Return the model's answer to the content of one request; a share of the requests is compared.

        `is_alone` says that no other request is being answered.
        """
        request = InferenceRequest(content, self.current, None, source)
        if (other := self.canary or self.shadow) and random.random() < self.share:  # noqa: S311
            request = InferenceRequest(content, self.canary or self.current, (self.current, other), source)
        return await self.batcher.submit(request, self.limits.wait_seconds, is_alone)

    def _compute_requests(self, requests: Sequence[InferenceRequest]) -> list[Any]:
        """Return for each request the output of its version, or the error with which it is rejected."""
        decoded = [self._decode_inputs(request) for request in requests]
        accepted = [i for i, inputs in enumerate(decoded) if not isinstance(inputs, RequestRejected)]
        answers: list[Any] = list(decoded)
        for version in dict.fromkeys(request.version for request in requests):
            indices = [i for i in accepted if requests[i].version is version]
            for batch in pack_batches(indices, [len(decoded[i]) for i in indices], self.limits.batch):
                outputs, computed = self.kind.run_version(
                    version, [decoded[i] for i in batch], [requests[i] for i in batch]
                )
                self.computed_batches.append(computed)
                for i, output in zip(batch, outputs, strict=True):
                    answers[i] = output
                    if requests[i].compared_versions is not None:
                        self.pending_comparisons.append((requests[i], decoded[i], output))
        return answers

    def _decode_request(self, request: InferenceRequest) -> InferenceRequest:
        """Return a request with its inputs decoded, before it is computed."""
        return replace(request, decoded=self._decode_inputs(request))

    def _list_first_stages(self, request: InferenceRequest) -> list[Stage]:
        """Return the stages of the work on a request before the last one, `_compute_requests`."""
        parts = request.version.engine_parts[:-1]
        return [self._decode_request, *(partial(self.kind.run_part, part) for part in parts)]

    def _decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the inputs of a request, or the error with which it is rejected."""
        return self.kind.decode_inputs(request) if request.decoded is None else request.decoded

    def _notify_listener(self) -> None:
        """Pass computed batches and comparisons to the listener, after their requests were answered."""
        while self.computed_batches:
            self.listener.on_batch(self.name, self.computed_batches.pop())
        while self.pending_comparisons:
            self.listener.on_comparison(self.name, compare_versions(*self.pending_comparisons.pop()))


class ModelRegistry:
    """Models of a replica by name, and their loaded versions."""

    def __init__(
        self, limits: Limits, loop: asyncio.AbstractEventLoop, listener: InferenceListener, drift_enabled: bool = True
    ) -> None:
        self.limits, self.loop, self.listener = limits, loop, listener
        self.drift_enabled = drift_enabled
        """whether reference profiles are loaded, for drift detection"""
        self.load_error: str | None = None
        self.models: dict[str, Model] = {}
        self.loaded_versions: dict[tuple[str, str | None], LoadedVersion] = {}

    def find_model(self, name: str | None) -> Model:
        """Return the model of a name, or the only model if no name is given."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        names = ", ".join(self.models) or "none yet"
        if name is None:
            raise model_is_not_named(names)
        if name not in self.models:
            raise model_is_unknown(name, names)
        return self.models[name]

    def require_room(self) -> None:
        """Raise RequestRejected if the only model's queue is full, before a request is read."""
        if len(self.models) == 1:
            next(iter(self.models.values())).batcher.reject_if_full()

    def busy_seconds(self) -> float:
        """Return the seconds that all models have spent computing."""
        return sum(model.batcher.busy_seconds for model in self.models.values())

    def apply_specs(self, model_specs: Mapping[str, ModelSpec]) -> None:
        """Load all new bundles, and only then swap: a bundle that cannot be loaded changes nothing."""
        loaded = {name: self._load_spec(spec) for name, spec in model_specs.items()}
        for name, versions in loaded.items():
            self._swap_versions(name, versions, model_specs[name].share)
        for name in [*self.models]:
            if name not in model_specs:
                self.models.pop(name).close()
        used = {version for model in self.models.values() for version in model.versions_by_role().values()}
        self.loaded_versions = {key: version for key, version in self.loaded_versions.items() if version in used}

    def _swap_versions(
        self, name: str, versions: tuple[LoadedVersion, LoadedVersion | None, LoadedVersion | None], share: float
    ) -> None:
        current, canary, shadow = versions
        model = self.models.get(name)
        if model is not None and model.current.bundle.kind != current.bundle.kind:
            model.close()
            model = None
        if model is None:
            model = self.models[name] = Model(name, self.limits, self.loop, self.listener, current)
            model.start()
        if model.current is not current:
            model.previous, model.current = model.current, current
        model.canary, model.shadow, model.share = canary, shadow, share

    def _load_spec(self, spec: ModelSpec) -> tuple[LoadedVersion, LoadedVersion | None, LoadedVersion | None]:
        """Load the current version of a model, its canary and its shadow."""
        current = self._load_version(spec.bundle, spec.engine)
        canary, shadow = (self._load_comparable(current, path, spec.engine) for path in (spec.canary, spec.shadow))
        return current, canary, shadow

    def _load_comparable(self, current: LoadedVersion, path: str | None, engine: str | None) -> LoadedVersion | None:
        """Load a canary or shadow; refuse one with another image shape or other classes, or of other data."""
        if path is None:
            return None
        version = self._load_version(path, engine)
        problem = f"cannot compare {version.path} with {current.path}"
        version.bundle.manifest.require_comparable(current.bundle.manifest, problem)
        return version

    def _load_version(self, path: str, engine: str | None) -> LoadedVersion:
        """Load a bundle; return the loaded version if its content and engine are unchanged."""
        folder = download_folder(path)
        key = (verify_bundle(folder).digest, engine)
        if key not in self.loaded_versions:
            bundle = load_bundle(folder, engine)
            verify_golden_outputs(bundle)
            profile = load_reference_profile(bundle) if self.drift_enabled else DRIFT_DETECTION_OFF
            self.loaded_versions[key] = LoadedVersion(bundle, path, bundle.version, profile, split_engine(bundle))
        return self.loaded_versions[key]


def model_status(model: Model) -> ModelStatus:
    """Return a model's name, classes, share and bundles by role."""
    versions = {
        role: VersionStatus(version=version.id, bundle=version.path, engine=version.bundle.engine_name)
        for role, version in model.versions_by_role().items()
    }
    share = model.share if model.canary or model.shadow else 0.0
    return ModelStatus(
        name=model.name, kind=model.current.bundle.kind, classes=model.current.bundle.classes, share=share, **versions
    )
