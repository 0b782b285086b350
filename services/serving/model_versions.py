"""Bundles that answer for a model: which are wanted, and which are loaded."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from equipoise.bundle.bundle import Bundle
from equipoise.bundle.engines import ENGINES
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays

NUM_GOLDEN_IMAGES = 16  # pictures of the reference that a bundle must answer as it did when it was published
GOLDEN_TOLERANCE = 1e-3  # of the largest score: another processor rounds otherwise, another model differs by more


class ModelSpec(BaseModel):
    """Which bundles answer for a model's name."""

    model_config = ConfigDict(extra="forbid")

    bundle: str
    canary: str | None = None
    """a bundle that answers a share of the requests"""
    shadow: str | None = None
    """a bundle that is asked a share of the requests too, once they are answered"""
    share: float = Field(0.1, ge=0, le=1)
    engine: str | None = None
    """instead of the bundle's own: for comparisons"""

    @field_validator("engine")
    @classmethod
    def require_known_engine(cls, engine: str | None) -> str | None:
        """One of those there are."""
        if engine is not None and engine not in ENGINES:
            raise ValueError(f"there is no engine {engine[:40]!r}; there are {', '.join(ENGINES)}")
        return engine

    def bundle_paths(self) -> list[str]:
        """Where its bundles are."""
        return [path for path in (self.bundle, self.canary, self.shadow) if path]

    @model_validator(mode="after")
    def require_single_comparison(self) -> Self:
        """One comparison at a time, or its share would not say of what."""
        if self.canary and self.shadow:
            raise ValueError("there are both a canary and a shadow: give one")
        return self


@dataclass(frozen=True)
class LoadedVersion:
    """A loaded bundle."""

    bundle: Bundle
    path: str
    id: str
    reference: ReferenceProfile | str = "drift is not watched for"
    """what its requests are held against, or why they cannot be"""


def load_reference_profile(loaded_bundle: Bundle) -> ReferenceProfile | str:
    """What requests of a bundle are held against."""
    _, features = loaded_bundle.run_engine(torch.zeros(1, *loaded_bundle.shape, dtype=torch.uint8))
    try:
        return profile_from_arrays(loaded_bundle.load_reference_arrays(), len(loaded_bundle.classes), features.shape[1])
    except ValueError as error:
        return str(error)


def verify_golden_outputs(loaded_bundle: Bundle) -> None:
    """Refuse a bundle that does not say here what it said where it was published."""
    kept = loaded_bundle.load_reference_arrays()
    pictures = torch.from_numpy(kept["pictures"][:NUM_GOLDEN_IMAGES])
    logits, _ = loaded_bundle.run_engine(pictures)
    expected = kept["logits"][kept["places"][:NUM_GOLDEN_IMAGES]]
    apart = float(np.abs(logits.numpy() - expected).max() / max(np.abs(expected).max(), 1e-12))
    if apart > GOLDEN_TOLERANCE:
        raise ValueError(
            f"{loaded_bundle.folder} answers otherwise than when it was published, by {apart:.1e}: publish again"
        )
