"""Bundles that answer for a model: which are wanted, and which are loaded."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from equipoise.bundle import bundle
from equipoise.bundle.engines import ENGINES
from equipoise.drift.reference.profile import Known, known

GOLDEN = 16  # pictures of the reference that a bundle must answer as it did when it was published
TOLERANCE = 1e-3  # of the largest score: another processor rounds otherwise, another model differs by more


class Wanted(BaseModel):
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
    def known(cls, engine: str | None) -> str | None:
        """One of those there are."""
        if engine is not None and engine not in ENGINES:
            raise ValueError(f"there is no engine {engine[:40]!r}; there are {', '.join(ENGINES)}")
        return engine

    def paths(self) -> list[str]:
        """Where its bundles are."""
        return [path for path in (self.bundle, self.canary, self.shadow) if path]

    @model_validator(mode="after")
    def one_other(self) -> Self:
        """One comparison at a time, or its share would not say of what."""
        if self.canary and self.shadow:
            raise ValueError("there are both a canary and a shadow: give one")
        return self


@dataclass(frozen=True)
class Version:
    """A loaded bundle."""

    bundle: bundle.Bundle
    path: str
    id: str
    reference: Known | str = "drift is not watched for"
    """what its requests are held against, or why they cannot be"""


def reference(found: bundle.Bundle) -> Known | str:
    """What requests of a bundle are held against."""
    _, features = found.run(torch.zeros(1, *found.shape, dtype=torch.uint8))
    try:
        return known(found.reference(), len(found.classes), features.shape[1])
    except ValueError as error:
        return str(error)


def require_golden(found: bundle.Bundle) -> None:
    """Refuse a bundle that does not say here what it said where it was published."""
    kept = found.reference()
    pictures = torch.from_numpy(kept["pictures"][:GOLDEN])
    logits, _ = found.run(pictures)
    expected = kept["logits"][kept["places"][:GOLDEN]]
    apart = float(np.abs(logits.numpy() - expected).max() / max(np.abs(expected).max(), 1e-12))
    if apart > TOLERANCE:
        raise ValueError(f"{found.folder} answers otherwise than when it was published, by {apart:.1e}: publish again")
