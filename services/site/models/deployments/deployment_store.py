"""Document of all deployments of a site: a JSON file that survives the site, changed by one process at a time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.file_lock import hold_file_lock
from equipoise.storage.json_decoding import decode_json_value
from services.site.models.deployments.deployment import Deployment

DOCUMENT_FILE, DOCUMENT_LOCK_FILE = "deployments.json", "deployments.lock"
HandOver = Callable[[list[Deployment]], None]
"""tells others of the changed deployments before anybody else can change them; its failure undoes the change"""


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

    def lock(self) -> AbstractContextManager[None]:
        """Keep other threads and processes from changing the document until the end of the block."""
        return hold_file_lock(self.folder / DOCUMENT_LOCK_FILE)

    def add_deployment(
        self, build: Callable[[list[Deployment]], Deployment], hand_over: HandOver | None = None
    ) -> Deployment:
        """Add the deployment that `build` makes from all others, and return it."""
        with self.lock():
            others = self.list_deployments()
            added = build(others)
            self._replace(others, [*others, added], hand_over)
        return added

    def change_deployment(
        self, name: str, change: Callable[[Deployment], Deployment], hand_over: HandOver | None = None
    ) -> Deployment:
        """Replace a deployment by what `change` makes of it, and return that."""
        with self.lock():
            changed, before = change(self.find_deployment(name)), self.list_deployments()
            self._replace(before, [changed if other.name == name else other for other in before], hand_over)
        return changed

    def remove_deployment(self, name: str, hand_over: HandOver | None = None) -> Deployment:
        """Remove a deployment and return it; its captures, labels and drift state stay."""
        with self.lock():
            removed, before = self.find_deployment(name), self.list_deployments()
            self._replace(before, [other for other in before if other.name != name], hand_over)
        return removed

    def _replace(self, before: Sequence[Deployment], after: Sequence[Deployment], hand_over: HandOver | None) -> None:
        """Write the document and hand it over; one that is not taken is undone, while nobody else can change it."""
        self._write(after)
        if hand_over is None:
            return
        try:
            hand_over(self.list_deployments())
        except (EquipoiseError, OSError):
            self._write(before)
            raise

    def _write(self, deployments: Sequence[Deployment]) -> None:
        document = DeploymentDocument(deployments=tuple(deployments))
        write_json(self.folder / DOCUMENT_FILE, msgspec.to_builtins(document))
