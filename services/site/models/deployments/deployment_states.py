"""What the pages and the API say of a deployment: its document, Serve's state, and what its service answers.

All who look within four seconds share one look at each service, so that many open pages cost as much as one.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from equipoise.captures.store import CaptureStore
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.errors import EquipoiseError
from equipoise.labels.capture_queue import CaptureLabelStore, list_capture_names, picture_name
from services.http.message_types import ComparisonReply, ModelsReply
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_manager import ABSENT, DeploymentManager
from services.site.models.deployments.deployment_messages import DeploymentReply, TrafficReply, VerdictReply
from services.site.models.deployments.serve_config import DeploymentFolders, ServeState
from services.site.models.deployments.service_calls import ServiceCalls
from services.site.models.deployments.service_traffic import TrafficWindow

LOOK_SECONDS = 4.0  # for so long, one look at the services is shown to all
UNREACHABLE = ServeState(state="absent", message="cannot reach Ray Serve; start the site again with equipoise up")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, kw_only=True)
class ServiceLook:
    """What a service has answered at one moment; None for what it has not."""

    models: ModelsReply | None = None
    verdict: StreamVerdict | None = None
    events: tuple[DriftEvent, ...] = ()
    traffic: TrafficReply | None = None
    comparison: ComparisonReply | None = None


@dataclass(frozen=True, kw_only=True)
class DeploymentLook:
    """Deployment with its state at one moment."""

    deployment: Deployment
    serve: ServeState
    service: ServiceLook = field(default_factory=ServiceLook)
    captures: int = 0
    """requests kept and not labelled yet"""
    labelled: int = 0


class DeploymentStates:
    """Looks at all deployments of a site."""

    def __init__(self, manager: DeploymentManager, look_seconds: float = LOOK_SECONDS) -> None:
        self.manager, self.look_seconds = manager, look_seconds
        self._lock = threading.Lock()
        self._windows: dict[str, TrafficWindow] = {}
        self._looks: dict[str, DeploymentLook] = {}
        self._looked_at = -look_seconds
        self._changes, self._changes_seen = 0, -1
        """changes that were made, and how many of them the last look has seen"""

    def list_looks(self) -> list[DeploymentLook]:
        """Return a look at each deployment, by name, which is at most four seconds old.

        While another thread looks, the last look is returned unless something was changed since: services that do not
        answer must not keep all threads of the site.
        """
        if not self._lock.acquire(blocking=self._changes_seen != self._changes):
            return [*self._looks.values()]
        try:
            is_old, changes = time.monotonic() - self._looked_at >= self.look_seconds, self._changes
            if is_old or self._changes_seen != changes:
                self._looks = {look.deployment.name: look for look in self._look_at_all()}
                self._looked_at, self._changes_seen = time.monotonic(), changes
            return [*self._looks.values()]
        finally:
            self._lock.release()

    def find_look(self, name: str) -> DeploymentLook:
        """Return a look at one deployment; refuse an unknown name."""
        deployment = self.manager.store.find_deployment(name)
        looks = {look.deployment.name: look for look in self.list_looks()}
        look = looks.get(name)
        if look and look.deployment == deployment:
            return look
        with self._lock:
            return self._look_at(deployment, self._read_states())

    def forget_looks(self) -> None:
        """Look anew at the next call, because something has been changed; a look in progress may have missed it."""
        self._changes += 1

    def open_service(self, deployment: Deployment) -> ServiceCalls:
        """Return the client of a deployment's service."""
        key = self.manager.read_key(deployment.name)
        return ServiceCalls(url=service_url(deployment), model=deployment.model, key=key)

    def _read_states(self) -> dict[str, ServeState] | None:
        try:
            return self.manager.read_states()
        except EquipoiseError:
            return None

    def _look_at_all(self) -> list[DeploymentLook]:
        deployments = self.manager.list_deployments()
        states = self._read_states() if deployments else {}
        names = {deployment.name for deployment in deployments}
        self._windows = {name: window for name, window in self._windows.items() if name in names}
        return [self._look_at(deployment, states) for deployment in deployments]

    def _look_at(self, deployment: Deployment, states: dict[str, ServeState] | None) -> DeploymentLook:
        serve = UNREACHABLE if states is None else states.get(deployment.name, ABSENT)
        service = self._ask_service(deployment) if serve.state in ("running", "failed") or states is None else None
        folders = DeploymentFolders(results=self.manager.results, name=deployment.name)
        names = {*map(picture_name, list_capture_names(folders.captures))}
        store = CaptureLabelStore(folders.labels, CaptureStore(str(folders.captures)))
        labelled = len(names & store.list_labelled())
        return DeploymentLook(
            deployment=deployment,
            serve=serve,
            service=service or ServiceLook(),
            captures=len(names) - labelled,
            labelled=labelled,
        )

    def _ask_service(self, deployment: Deployment) -> ServiceLook:
        try:
            service = self.open_service(deployment)
            models = service.get_models()
        except EquipoiseError:  # it is starting, or its key file is gone
            return ServiceLook()
        window = self._windows.setdefault(deployment.name, TrafficWindow())
        metrics = answer_or_none(service.get_metrics)
        return ServiceLook(
            models=models,
            verdict=answer_or_none(service.get_verdict),
            events=tuple(answer_or_none(service.get_events) or ()),
            traffic=window.add_metrics(metrics) if metrics else None,
            comparison=answer_or_none(service.get_comparison) if deployment.canary else None,
        )


def answer_or_none(call: Callable[[], AnswerT]) -> AnswerT | None:
    """Return the answer of a service, or None if it does not answer: the page shows what it has."""
    with suppress(EquipoiseError):
        return call()
    return None


def service_url(deployment: Deployment) -> str:
    """Return the URL of a deployment's service."""
    return f"http://127.0.0.1:{deployment.port}/"


def build_deployment_reply(look: DeploymentLook) -> DeploymentReply:
    """Return what the API says of a deployment."""
    deployment, models = look.deployment, look.service.models
    status = next((model for model in models.models if model.name == deployment.model), None) if models else None
    return DeploymentReply(
        name=deployment.name,
        model=deployment.model,
        url=service_url(deployment),
        state=look.serve.state,
        message=look.serve.message,
        bundle=deployment.bundle,
        previous=deployment.previous,
        canary=deployment.canary,
        share=deployment.share,
        version=status.current.version if status else None,
        not_loaded=models.not_loaded if models else None,
        traffic=look.service.traffic,
        verdict=build_verdict_reply(look.service.verdict) if look.service.verdict else None,
        captures=look.captures,
        labelled=look.labelled,
        history=[*deployment.history],
        adaptation=deployment.adaptation,
    )


def build_verdict_reply(verdict: StreamVerdict) -> VerdictReply:
    """Return a verdict in short."""
    estimate = None if verdict.accuracy == "unknown" else verdict.accuracy
    return VerdictReply(
        state=verdict.state,
        why=verdict.why,
        cause=verdict.cause,
        since=verdict.since.at if verdict.since else None,
        images=verdict.images,
        accuracy=(estimate.value, estimate.low, estimate.high) if estimate else None,
        conditions=verdict.conditions,
    )
