"""State of a served model, as the HTTP API returns it and the service's page shows it."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET, UnsetType


@dataclass(frozen=True, kw_only=True)
class VersionStatus:
    """Bundle that answers for a model, or may."""

    version: str
    bundle: str
    """path or URL"""
    engine: str


@dataclass(frozen=True, kw_only=True)
class ModelStatus:
    """Model with its bundles by role; a role that no bundle has is left out."""

    name: str
    classes: list[str]
    share: float
    """share of the requests that the canary answers, or that the shadow computes too"""
    current: VersionStatus
    previous: VersionStatus | UnsetType = UNSET
    canary: VersionStatus | UnsetType = UNSET
    shadow: VersionStatus | UnsetType = UNSET

    def answering_versions(self) -> Iterator[tuple[str, VersionStatus, float]]:
        """Yield the role of each bundle in use, the bundle, and its share of the answers."""
        yield "current", self.current, 1.0
        if self.canary:
            yield "canary", self.canary, self.share
        if self.shadow:
            yield "shadow", self.shadow, 0.0
