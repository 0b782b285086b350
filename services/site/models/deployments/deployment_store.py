"""Document of all deployments of a site: a JSON file that survives the site, changed by one process at a time."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from services.site.models.deployments.deployment import Deployment

DOCUMENT_FILE, DOCUMENT_LOCK_FILE = "deployments.json", "deployments.lock"


@dataclass(frozen=True, kw_only=True)
class DeploymentDocument:
    """Contents of deployments.json: all deployments of a site."""

    schema: int = 1
    deployments: tuple[Deployment, ...] = ()


class DeploymentStore:
    """File with the deployments of a site, in the folder of its state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_deployments(self) -> list[Deployment]:
        """Return all deployments by name."""
        try:
            contents = read_json(self.folder / DOCUMENT_FILE)
        except FileNotFoundError:
            return []
        document = decode_json_value(
            contents,
            DeploymentDocument,
            code="file-damaged",
            problem=f"cannot read {self.folder / DOCUMENT_FILE}",
            remedy="restore it, or remove it and deploy again",
        )
        return sorted(document.deployments, key=lambda deployment: deployment.name)

    def find_deployment(self, name: str) -> Deployment:
        """Return the deployment of a name; refuse an unknown name."""
        for deployment in self.list_deployments():
            if deployment.name == name:
                return deployment
        raise EquipoiseError("path-missing", f"there is no deployment {name[:60]!r}", "deploy a bundle first")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other threads and processes from changing the document until the end of the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / DOCUMENT_LOCK_FILE).open("ab") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            yield

    def add_deployment(self, build: Callable[[list[Deployment]], Deployment]) -> Deployment:
        """Add the deployment that `build` makes from all others, and return it."""
        with self.lock():
            others = self.list_deployments()
            added = build(others)
            self._write([*others, added])
        return added

    def change_deployment(self, name: str, change: Callable[[Deployment], Deployment]) -> Deployment:
        """Replace a deployment by what `change` makes of it, and return that."""
        with self.lock():
            changed = change(self.find_deployment(name))
            self._write([changed if other.name == name else other for other in self.list_deployments()])
        return changed

    def remove_deployment(self, name: str) -> Deployment:
        """Remove a deployment and return it; its captures, labels and drift state stay."""
        with self.lock():
            removed = self.find_deployment(name)
            self._write([other for other in self.list_deployments() if other.name != name])
        return removed

    def _write(self, deployments: list[Deployment]) -> None:
        document = DeploymentDocument(deployments=tuple(deployments))
        write_json(self.folder / DOCUMENT_FILE, msgspec.to_builtins(document))
