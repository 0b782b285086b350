"""Declarative document of Ray Serve for the site's deployments, and the states that Serve reports of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from equipoise.formatting import make_printable
from equipoise.type_aliases import JsonObject
from jobs.site_ray.detached_ray import STATE_FOLDER
from services.site.models.deployments.deployment import Deployment

APPLICATION_PREFIX = "equipoise-site-"
"""in front of the names of the site's applications, which tells them from those of others"""
IMPORT_PATH = "services.app:build"
KEYS_FOLDER = "keys"
STATES = {
    "RUNNING": "running",
    "DEPLOYING": "starting",
    "NOT_STARTED": "starting",
    "DELETING": "stopping",
    "DEPLOY_FAILED": "failed",
    "UNHEALTHY": "failed",
}
"""states of Serve's applications in the site's words"""
MAX_MESSAGE_LENGTH = 300

DeploymentState = Literal["running", "starting", "stopping", "failed", "absent"]


@dataclass(frozen=True, kw_only=True)
class ServeState:
    """State of a deployment as Serve reports it."""

    state: Annotated[DeploymentState, Meta(description="running, starting, stopping, failed, or absent from Serve")]
    message: Annotated[str, Meta(description="reason of a state other than running; empty if Serve gives none")] = ""


@dataclass(frozen=True, kw_only=True)
class DeploymentFolders:
    """Files of a deployment below the results folder."""

    results: Path
    name: str

    @property
    def captures(self) -> Path:
        """Folder of requests kept for labelling."""
        return self.results / "services" / self.name / "captures"

    @property
    def labels(self) -> Path:
        """Folder of the labels that people give to these."""
        return self.results / "services" / self.name / "labels"

    @property
    def drift_state(self) -> Path:
        """Folder of the drift monitor's journal."""
        return self.results / "services" / self.name / "drift"

    @property
    def keys_file(self) -> Path:
        """File with the service's API keys, outside of what the site's pages show."""
        return self.results / STATE_FOLDER / KEYS_FOLDER / f"{self.name}.keys"


def build_serve_config(
    deployments: Sequence[Deployment], results: Path, other_applications: Sequence[JsonObject] = ()
) -> JsonObject:
    """Return the document for Serve's REST API; applications of others are repeated, since it removes what it lacks."""
    applications = [build_application_config(deployment, results) for deployment in deployments]
    return {"proxy_location": "Disabled", "applications": [*other_applications, *applications]}


def build_application_config(deployment: Deployment, results: Path) -> JsonObject:
    """Return the application of a deployment: what changes while it runs is all under `user_config`."""
    folders = DeploymentFolders(results=results, name=deployment.name)
    arguments: JsonObject = {
        "host": "127.0.0.1",
        "port": deployment.port,
        "state_dir": str(folders.drift_state),
        "capture_dir": str(folders.captures),
    }
    if deployment.requires_key:
        arguments["api_keys_file"] = str(folders.keys_file)
    model: JsonObject = {"bundle": str(results / deployment.bundle)}
    if deployment.canary is not None:
        model |= {"canary": str(results / deployment.canary), "share": deployment.share}
    replica_options = {
        "name": "Predictor",
        "num_replicas": deployment.replicas,
        "user_config": {deployment.model: model},
    }
    return {
        "name": application_name(deployment.name),
        "route_prefix": f"/{application_name(deployment.name)}",
        "import_path": IMPORT_PATH,
        "args": arguments,
        "deployments": [replica_options],
    }


def application_name(deployment_name: str) -> str:
    """Return the name of the Serve application of a deployment."""
    return f"{APPLICATION_PREFIX}{deployment_name}"


def find_other_applications(details: Mapping[str, Any]) -> list[JsonObject]:
    """Return the documents of the applications that others have deployed in the same way, from Serve's details."""
    applications: Mapping[str, Any] = details.get("applications") or {}
    return [
        application["deployed_app_config"]
        for name, application in applications.items()
        if not name.startswith(APPLICATION_PREFIX)
        and application.get("source") == "declarative"
        and application.get("deployed_app_config")
    ]


def read_serve_states(details: Mapping[str, Any]) -> dict[str, ServeState]:
    """Return the state of each of the site's deployments that Serve knows, by the deployment's name."""
    applications: Mapping[str, Any] = details.get("applications") or {}
    return {
        name.removeprefix(APPLICATION_PREFIX): read_application_state(application)
        for name, application in applications.items()
        if name.startswith(APPLICATION_PREFIX)
    }


def read_application_state(application: Mapping[str, Any]) -> ServeState:
    """Return the state of one application, with the reason that its deployment or it itself gives."""
    state: Any = STATES.get(str(application.get("status")), "failed")
    if state == "running":
        return ServeState(state=state)
    parts = [*(application.get("deployments") or {}).values(), application]
    messages = [str(part.get("message") or "") for part in parts]
    return ServeState(state=state, message=shorten_message(next(filter(None, messages), "")))


def shorten_message(message: str) -> str:
    """Return the line of Serve's message that says what is wrong: of a traceback, the last one that names an error."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or line.startswith("cannot ")]
    line = (errors or lines or [""])[-1 if errors else 0].rpartition("EquipoiseError: ")[2]
    return make_printable(line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[:MAX_MESSAGE_LENGTH]}...")
