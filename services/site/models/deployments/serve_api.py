"""Ray Serve's REST API: hand it the document of all applications, and read their states."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.serve_config import (
    ServeState,
    build_serve_config,
    find_other_applications,
    read_serve_states,
)

APPLICATIONS_PATH = "/api/serve/applications/"
READ_SECONDS = 20.0
APPLY_SECONDS = 180.0  # the first document starts Serve's controller


class ServeApi:
    """Serve of one Ray, behind its dashboard; every call blocks."""

    def __init__(self, ray: RayDashboard) -> None:
        self.ray = ray

    def read_states(self) -> dict[str, ServeState]:
        """Return the states of the site's deployments that Serve knows, by name."""
        return read_serve_states(self._read_details())

    def apply_deployments(self, deployments: Sequence[Deployment], results: Path) -> None:
        """Make Serve run these deployments of the site, and what others have deployed, but none besides."""
        others = find_other_applications(self._read_details(APPLY_SECONDS))
        config = build_serve_config(deployments, results, others)
        self.ray.request("PUT", APPLICATIONS_PATH, config, timeout=APPLY_SECONDS)

    def _read_details(self, seconds: float = READ_SECONDS) -> Mapping[str, Any]:
        details = self.ray.request("GET", APPLICATIONS_PATH, timeout=seconds)
        return details if isinstance(details, dict) else {}
