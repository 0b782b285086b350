"""Adaptation of a deployed model: `equipoise adapt` as a job, its gate's report, and the model that waits behind it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from equipoise.drift.adaptation.gate_report import GateReport
from equipoise.errors import EquipoiseError
from equipoise.labels.store import LabelStore
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.models.deployments.deployment import Adaptation, Deployment
from services.site.models.deployments.deployment_manager import DeploymentManager
from services.site.models.deployments.deployment_states import service_url
from services.site.models.deployments.serve_config import DeploymentFolders

AdaptationState = Literal["running", "passed", "refused", "ended"]


@dataclass(frozen=True, kw_only=True)
class AdaptBody:
    """Request to adapt the model of a deployment to the drift of its requests, without swapping it in."""

    epochs: Annotated[int, Meta(ge=1, le=1000, description="passes over the images that it is fine-tuned on")] = 12
    workers: Annotated[int, Meta(ge=1, le=64, description="processes that share every batch")] = 1
    accept_blur: Annotated[bool, Meta(description="adapt to a blur that is there to stay")] = False


@dataclass(frozen=True, kw_only=True)
class AdaptationReply:
    """Adapted model of a deployment: whether its job runs, what the gate compared, and whether it may be promoted."""

    state: Annotated[AdaptationState, Meta(description="running, passed, refused, or ended without a model")]
    job: Annotated[str, Meta(description="id of the job")]
    bundle: Annotated[str, Meta(description="path of the new bundle below the results folder")]
    report: Annotated[GateReport | None, Meta(description="what the gate compared; null before that")]
    message: Annotated[str, Meta(description="what the job said last, where it ended without a model")] = ""


class AdaptationJobs:
    """Starts the adaptation of a deployment, and reads what became of it."""

    def __init__(self, manager: DeploymentManager, jobs: JobDesk) -> None:
        self.manager, self.jobs = manager, jobs

    def start_adaptation(self, name: str, body: AdaptBody, started_by: str) -> Deployment:
        """Start the job; refuse a second one while the first is running."""
        deployment = self.manager.store.find_deployment(name)
        if deployment.adaptation and self._is_active(deployment.adaptation.job):
            raise EquipoiseError(
                "path-in-use", f"cannot adapt {name}: its adaptation is in progress", "wait for it, or stop its job"
            )
        adaptation = choose_adaptation_paths(self.manager.results, deployment)
        arguments = build_adapt_arguments(self.manager.results, deployment, adaptation, body)
        (self.manager.results / adaptation.report).parent.mkdir(parents=True, exist_ok=True)
        job = self.jobs.start_job("adapt", arguments, started_by)
        started = replace(adaptation, job=job.id)
        return self.manager.store.change_deployment(name, lambda current: replace(current, adaptation=started))

    def dismiss_adaptation(self, name: str) -> Deployment:
        """Forget the adapted model; its bundle stays below the results folder."""
        return self.manager.store.change_deployment(name, lambda current: replace(current, adaptation=None))

    def read_adaptation(self, deployment: Deployment) -> AdaptationReply | None:
        """Return what became of a deployment's adaptation; None if there is none."""
        adaptation = deployment.adaptation
        if adaptation is None:
            return None
        report = read_report(self.manager.results / adaptation.report)
        is_published = (self.manager.results / adaptation.bundle).is_dir()
        state: AdaptationState
        if report is not None and report.refusal is not None:
            state = "refused"
        elif is_published:
            state = "passed"
        else:
            state = "running" if self._is_active(adaptation.job) else "ended"
        message = self.jobs.read_log(adaptation.job).find_failure()[0] if state == "ended" else ""
        return AdaptationReply(
            state=state, job=adaptation.job, bundle=adaptation.bundle, report=report, message=message
        )

    def _is_active(self, job_id: str) -> bool:
        """Return whether a job waits or runs."""
        try:
            return self.jobs.find_job(job_id).is_active
        except EquipoiseError:  # its record is gone
            return False


def choose_adaptation_paths(results: Path, deployment: Deployment) -> Adaptation:
    """Return the paths of the next adaptation, neither of which exists; the job is not known yet."""
    parent = Path(deployment.bundle).parent
    number = 1
    while True:
        bundle = (parent / f"{deployment.name}-adapted-{number}").as_posix()
        report = f"services/{deployment.name}/adaptations/{number}.json"
        if not (results / bundle).exists() and not (results / report).exists():
            return Adaptation(job="", bundle=bundle, report=report, at=time.time())
        number += 1


def build_adapt_arguments(
    results: Path, deployment: Deployment, adaptation: Adaptation, body: AdaptBody
) -> Sequence[str]:
    """Return the options of `equipoise adapt`: the new bundle is published and not linked, so nothing is swapped."""
    folders = DeploymentFolders(results=results, name=deployment.name)
    options = {
        "--bundle": str(results / deployment.bundle),
        "--service": service_url(deployment),
        "--capture-dir": str(folders.captures),
        "--out": str(results / adaptation.bundle),
        "--report": str(results / adaptation.report),
        "--epochs": str(body.epochs),
        "--workers": str(body.workers),
        **({"--labels": str(folders.labels)} if LabelStore(folders.labels).read_classes()[0] else {}),
        **({"--key": str(folders.keys_file)} if deployment.requires_key else {}),
    }
    pairs = [word for pair in options.items() for word in pair]
    return [*pairs, *(["--accept-blur"] if body.accept_blur else [])]


def read_report(path: Path) -> GateReport | None:
    """Read the gate's report; None while there is none."""
    try:
        return GateReport.read(path)
    except (FileNotFoundError, EquipoiseError):
        return None
