"""State of a served model, as the HTTP API returns it and the service's page shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType


@dataclass(frozen=True, kw_only=True)
class VersionStatus:
    """Bundle that answers for a model, or may."""

    version: Annotated[str, Meta(description="first digits of the bundle's digest")]
    bundle: Annotated[str, Meta(description="path or URL")]
    engine: Annotated[str, Meta(description="engine that computes")]


@dataclass(frozen=True, kw_only=True)
class ModelStatus:
    """Model with its bundles by role; a role that no bundle has is left out."""

    name: Annotated[str, Meta(description="name of the model")]
    kind: Annotated[str, Meta(description="kind of data that it takes: image, table, text or boxes")] = "image"
    classes: Annotated[
        list[str], Meta(description="names of its classes, in the order of the scores; empty if it does not classify")
    ]
    share: Annotated[
        float, Meta(description="share of the requests that the canary answers, or that the shadow computes too")
    ]
    current: Annotated[VersionStatus, Meta(description="bundle that answers")]
    previous: Annotated[VersionStatus | UnsetType, Meta(description="bundle that answered before")] = UNSET
    canary: Annotated[VersionStatus | UnsetType, Meta(description="bundle that answers a share")] = UNSET
    shadow: Annotated[VersionStatus | UnsetType, Meta(description="bundle that computes without answering")] = UNSET

    def answering_versions(self) -> Iterator[tuple[str, VersionStatus, float]]:
        """Yield the role of each bundle in use, the bundle, and its share of the answers."""
        yield "current", self.current, 1.0 - self.share if self.canary else 1.0
        if self.canary:
            yield "canary", self.canary, self.share
        if self.shadow:
            yield "shadow", self.shadow, 0.0
