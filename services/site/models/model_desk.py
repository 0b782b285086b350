"""All that the pages and the API of models work with: bundles, deployments, their states and adaptations."""

from dataclasses import dataclass
from pathlib import Path

from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.models.adaptation_jobs import AdaptationJobs, AdaptationReply
from services.site.models.bundle_catalog import BundleCatalog, BundleEntry
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_manager import DeploymentManager
from services.site.models.deployments.deployment_messages import BundleReply, DeploymentReply
from services.site.models.deployments.deployment_states import DeploymentStates, build_deployment_reply
from services.site.models.deployments.serve_api import ServeApi


@dataclass(frozen=True, kw_only=True)
class ModelDesk:
    """Bundles and deployments of one site."""

    catalog: BundleCatalog
    manager: DeploymentManager
    states: DeploymentStates
    adaptations: AdaptationJobs

    @classmethod
    def open(cls, results: Path, ray: RayDashboard | None, jobs: JobDesk) -> "ModelDesk":
        """Open the desk of a results folder; without a Ray it shows bundles and changes nothing."""
        manager = DeploymentManager(results, ServeApi(ray) if ray else None)
        return cls(
            catalog=BundleCatalog(results),
            manager=manager,
            states=DeploymentStates(manager),
            adaptations=AdaptationJobs(manager, jobs),
        )

    def list_bundles(self) -> list[BundleReply]:
        """Return all bundles with the deployments that they answer for."""
        deployments = self.manager.list_deployments()
        return [build_bundle_reply(entry, deployments) for entry in self.catalog.list_bundles()]

    def find_bundle(self, path: str) -> BundleReply:
        """Return one bundle; refuse another path."""
        return build_bundle_reply(self.catalog.find_bundle(path), self.manager.list_deployments())

    def list_other_bundles(self, deployment: Deployment) -> list[BundleReply]:
        """Return the bundles of the same model that do not answer all requests of a deployment."""
        return [
            entry
            for entry in self.list_bundles()
            if entry.model == deployment.model and entry.path != deployment.bundle and not entry.problem
        ]

    def read_deployment(self, name: str) -> DeploymentReply:
        """Return a deployment as it is now."""
        return build_deployment_reply(self.states.find_look(name))

    def read_adaptation(self, name: str) -> AdaptationReply | None:
        """Return what became of a deployment's adaptation; None if there is none."""
        return self.adaptations.read_adaptation(self.manager.store.find_deployment(name))


def build_bundle_reply(entry: BundleEntry, deployments: list[Deployment]) -> BundleReply:
    """Return what the API and the pages say of a bundle."""
    manifest = entry.manifest
    return BundleReply(
        path=entry.path,
        model=manifest.name if manifest else None,
        version=manifest.version if manifest else None,
        kind=manifest.kind if manifest else None,
        classes=manifest.classes if manifest else [],
        quality=entry.describe_quality(),
        engine=manifest.engine.name if manifest else None,
        published=manifest.published if manifest else None,
        deployments=[each.name for each in deployments if entry.path in (each.bundle, each.canary)],
        problem=entry.problem,
    )
