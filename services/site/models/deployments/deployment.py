"""Deployment of a model by the site: which bundles answer, since when, and how each change follows from the last."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from msgspec import Meta

from equipoise.errors import EquipoiseError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
RESERVED_NAMES = ("bundles", "deploy", "now")  # of the site's own pages
MAX_HISTORY = 50  # changes that a deployment remembers

ChangeKind = Literal["deploy", "canary", "stop canary", "promote", "roll back"]


@dataclass(frozen=True, kw_only=True)
class BundleChange:
    """One change of the bundles that answer for a deployment."""

    kind: Annotated[ChangeKind, Meta(description="what was done")]
    bundle: Annotated[str, Meta(description="bundle that it was done with, as a path below the results folder")]
    at: Annotated[float, Meta(description="when, in seconds since 1970")]


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """Adapted model of a deployment, from the start of its job until somebody promotes or dismisses it."""

    job: Annotated[str, Meta(description="id of the job that trains it")]
    bundle: Annotated[str, Meta(description="path of the new bundle below the results folder")]
    report: Annotated[str, Meta(description="path of the gate's report below the results folder")]
    at: Annotated[float, Meta(description="when the job was started, in seconds since 1970")]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Service of one model that the site keeps running. Paths of bundles are relative to the results folder."""

    name: str
    """name in the site, which is also that of its folder of captures, labels and drift state"""
    model: str
    """name of the model, which all its bundles have"""
    bundle: str
    """bundle that answers"""
    port: int
    """port on loopback at which the service listens"""
    previous: str | None = None
    """bundle that answered before"""
    canary: str | None = None
    """bundle that answers a share of the requests"""
    share: float = 0.1
    """fraction of the requests that the canary answers"""
    requires_key: bool = False
    """whether the service asks for an API key, which the site keeps in a file"""
    replicas: int = 1
    """number of replicas"""
    history: tuple[BundleChange, ...] = ()
    """changes, the latest last"""
    adaptation: Adaptation | None = None
    """adapted model that waits for its gate or for a person"""

    def record_change(self, kind: ChangeKind, bundle: str, now: float) -> "Deployment":
        """Return the deployment with one more change in its history."""
        return replace(self, history=(*self.history, BundleChange(kind=kind, bundle=bundle, at=now))[-MAX_HISTORY:])

    def start_canary(self, bundle: str, share: float, now: float) -> "Deployment":
        """Return the deployment with a bundle that answers a share of the requests."""
        if not 0 < share < 1:
            raise EquipoiseError(
                "option-range", f"cannot start a canary with a share of {share:g}", "give one between 0 and 1"
            )
        if bundle == self.bundle:
            raise EquipoiseError(
                "option-conflict",
                f"cannot start {bundle} as canary of {self.name}: it answers all requests already",
                "choose another bundle",
            )
        return replace(self, canary=bundle, share=share).record_change("canary", bundle, now)

    def stop_canary(self, now: float) -> "Deployment":
        """Return the deployment without its canary."""
        return replace(self, canary=None).record_change("stop canary", self._require_canary("stop"), now)

    def promote_canary(self, now: float) -> "Deployment":
        """Return the deployment with its canary as the bundle that answers all requests."""
        return self.promote_bundle(self._require_canary("promote"), now)

    def promote_bundle(self, bundle: str, now: float) -> "Deployment":
        """Return the deployment with another bundle that answers all requests; an adapted model no longer waits."""
        if bundle == self.bundle:
            raise EquipoiseError(
                "option-conflict", f"cannot promote {bundle}: it answers all requests already", "choose another bundle"
            )
        adaptation = None if self.adaptation and self.adaptation.bundle == bundle else self.adaptation
        promoted = replace(self, bundle=bundle, previous=self.bundle, canary=None, adaptation=adaptation)
        return promoted.record_change("promote", bundle, now)

    def roll_back(self, now: float, to_bundle: str | None = None) -> "Deployment":
        """Return the deployment with its previous bundle; a second time leads back again, as with a link.

        Whoever gives `to_bundle` is refused if another bundle is the previous one by now: of two people who roll back
        at the same moment, the second would undo what the first has done.
        """
        if self.previous is None:
            raise EquipoiseError(
                "rollback-impossible",
                f"cannot roll back {self.name}: no bundle has answered before {self.bundle}",
                "promote another bundle",
            )
        if to_bundle not in (None, self.previous):
            raise EquipoiseError(
                "rollback-impossible",
                f"cannot roll back {self.name} to {to_bundle}: by now {self.previous} is the previous bundle",
                "open the page again",
            )
        rolled_back = replace(self, bundle=self.previous, previous=self.bundle, canary=None)
        return rolled_back.record_change("roll back", self.previous, now)

    def _require_canary(self, action: str) -> str:
        if self.canary is None:
            raise EquipoiseError(
                "option-missing", f"cannot {action} the canary of {self.name}: it has none", "start one first"
            )
        return self.canary


def require_deployment_name(name: str) -> str:
    """Return the name of a deployment; refuse one that cannot be part of a path and of a URL."""
    if not NAME_PATTERN.fullmatch(name) or name in RESERVED_NAMES:
        raise EquipoiseError(
            "option-format",
            f"cannot name a deployment {name[:60]!r}",
            "use up to 50 letters, digits, - and _, the first a letter or digit, and none of"
            f" {', '.join(RESERVED_NAMES)}",
        )
    return name
