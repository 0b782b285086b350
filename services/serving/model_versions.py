"""Specification of the bundles that answer for a model, and loaded bundles with their reference profiles."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from equipoise.bundle.engines import ENGINES, Engine
from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from equipoise.drift.reference.profile import ReferenceProfile, ReferenceUnavailable
from equipoise.errors import EquipoiseError

DRIFT_DETECTION_OFF = ReferenceUnavailable("drift detection is off")
NUM_GOLDEN_EXAMPLES = 16  # reference examples that a bundle must answer as it did when it was published
GOLDEN_TOLERANCE = (
    1e-3  # relative to the largest output: another processor rounds differently, another model differs by more
)


class ModelSpec(BaseModel):
    """Bundles that answer for a model name, and the share of requests for canary or shadow."""

    model_config = ConfigDict(extra="forbid")

    bundle: str
    """folder or URL of the published model that answers"""
    canary: str | None = None
    """bundle that answers a share of the requests"""
    shadow: str | None = None
    """bundle that also computes a share of the requests after they were answered, for comparison"""
    share: float = Field(0.1, ge=0, le=1)
    """fraction of the requests for the canary or shadow"""
    engine: str | None = None
    """inference engine instead of the bundle's own, for comparisons"""

    @field_validator("engine")
    @classmethod
    def require_known_engine(cls, engine: str | None) -> str | None:
        """Refuse an engine that does not exist."""
        if engine is not None and engine not in ENGINES:
            raise EquipoiseError(
                "engine-unknown", f"there is no engine {engine[:40]!r}", f"choose from {', '.join(ENGINES)}"
            )
        return engine

    def bundle_paths(self) -> list[str]:
        """Return the folders or URLs of all bundles of the model."""
        return [path for path in (self.bundle, self.canary, self.shadow) if path]

    @model_validator(mode="after")
    def require_single_comparison(self) -> Self:
        """Refuse a canary together with a shadow: `share` applies to one of them."""
        if self.canary and self.shadow:
            raise EquipoiseError("option-conflict", "a model cannot have both a canary and a shadow", "give one")
        return self


@dataclass(frozen=True)
class LoadedVersion:
    """Loaded bundle with its reference profile for drift detection."""

    bundle: Bundle
    path: str
    id: str
    reference: ReferenceProfile | ReferenceUnavailable = DRIFT_DETECTION_OFF
    engine_parts: tuple[Engine, ...] = ()
    """the engine in short parts, for the event loop; empty if it is short as a whole, or too long"""


def load_reference_profile(loaded_bundle: Bundle) -> ReferenceProfile | ReferenceUnavailable:
    """Return the reference profile of a bundle, or the reason why it has none."""
    try:
        return load_bundle_profile(loaded_bundle)
    except EquipoiseError as error:
        return ReferenceUnavailable(str(error))


def verify_golden_outputs(loaded_bundle: Bundle) -> None:
    """Refuse a bundle whose outputs on this machine differ from those stored at publication."""
    inputs, expected = loaded_bundle.load_kept_examples(NUM_GOLDEN_EXAMPLES)
    outputs = loaded_bundle.run_engine(*inputs)[0]
    difference = float(np.abs(outputs.numpy() - expected).max() / max(np.abs(expected).max(), 1e-12))
    if difference > GOLDEN_TOLERANCE:
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot serve {loaded_bundle.folder}: its outputs differ by {difference:.1e} from those at publication",
            "publish it again",
        )
