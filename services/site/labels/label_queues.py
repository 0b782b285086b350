"""Queues of pictures that people label on the site: captures of deployments, and folders below the results folder."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from equipoise.errors import EquipoiseError
from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.file_lock import hold_file_lock
from equipoise.storage.json_decoding import decode_json_value
from jobs.site_ray.detached_ray import STATE_FOLDER
from services.labelling.capture_session import open_capture_session
from services.labelling.session import LabelSession
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_store import DeploymentStore
from services.site.models.deployments.serve_config import DeploymentFolders
from services.site.result_paths import resolve_result_path

QUEUES_FILE, QUEUES_LOCK_FILE = "label-queues.json", "label-queues.lock"
LABELS_FOLDER = "labels"
QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
LabelKind = Literal["boxes", "class"]
SessionFacts = tuple[str, str, LabelKind, tuple[str, ...]]
"""folders of the pictures and of the labels, their kind, and the classes of the model that answered them"""


@dataclass(frozen=True, kw_only=True)
class QueueBody:
    """Request to label the pictures of a folder."""

    name: Annotated[str, Meta(description="name of the queue, part of its address")]
    images: Annotated[str, Meta(min_length=1, description="folder of the pictures below the results folder")]
    kind: Annotated[LabelKind, Meta(description="boxes, or class for one class per picture")]
    classes: Annotated[list[str], Meta(description="classes, in the order of their number keys")] = field(
        default_factory=list
    )


@dataclass(frozen=True, kw_only=True)
class QueueReply:
    """Queue of pictures with its numbers."""

    name: Annotated[str, Meta(description="name of the queue")]
    images: Annotated[str, Meta(description="folder of the pictures below the results folder")]
    labels: Annotated[str, Meta(description="folder of the labels below the results folder")]
    kind: Annotated[LabelKind, Meta(description="boxes or class")]
    deployment: Annotated[bool, Meta(description="whether the pictures are captures of the deployment of this name")]
    total: Annotated[int, Meta(description="number of pictures")] = 0
    labelled: Annotated[int, Meta(description="number of pictures with labels")] = 0
    problem: Annotated[str, Meta(description="why the pictures cannot be labelled; empty if they can")] = ""


@dataclass(frozen=True, kw_only=True)
class QueuesReply:
    """All queues of the site."""

    queues: list[QueueReply]


class LabelQueues:
    """Queues of one site. A session is kept open while its queue stays as it is: it has copies for the page."""

    def __init__(self, results: Path) -> None:
        self.results = results.absolute()
        self.state_folder = self.results / STATE_FOLDER
        self.deployments = DeploymentStore(self.state_folder)
        self._sessions: dict[str, tuple[SessionFacts, LabelSession]] = {}
        self._lock = threading.Lock()

    def list_queues(self) -> list[QueueReply]:
        """Return all queues with their numbers: captures of deployments first."""
        pairs = [(entry, self._read_manifest(entry)) for entry in self.deployments.list_deployments()]
        captures = [self._describe_deployment(entry, manifest) for entry, manifest in pairs if takes_pictures(manifest)]
        return [self._count(queue) for queue in [*captures, *self.read_folders()]]

    def find_queue(self, name: str) -> QueueReply:
        """Return a queue by its name; refuse an unknown one."""
        for deployment in self.deployments.list_deployments():
            if deployment.name == name:
                return self._describe_deployment(deployment, self._read_manifest(deployment))
        for queue in self.read_folders():
            if queue.name == name:
                return queue
        raise EquipoiseError("path-missing", f"there is no label queue {name[:60]!r}", "see /labels for all")

    def open_session(self, name: str) -> LabelSession:
        """Return the session of a queue, which all its people share."""
        return self._open_queue(self.find_queue(name))

    def _open_queue(self, queue: QueueReply) -> LabelSession:
        """Return the session of a queue; a new one if it has another folder, kind or classes than before."""
        manifest = self._read_manifest(self.deployments.find_deployment(queue.name)) if queue.deployment else None
        facts = queue.images, queue.labels, queue.kind, tuple(manifest.classes) if manifest else ()
        with self._lock:
            known = self._sessions.get(queue.name)
            if known is None or known[0] != facts:
                known = self._sessions[queue.name] = facts, self._start_session(queue, manifest)
            return known[1]

    def add_folder(self, body: QueueBody) -> QueueReply:
        """Add a queue of a folder of pictures."""
        if not QUEUE_NAME.fullmatch(body.name):
            raise EquipoiseError(
                "option-format",
                f"cannot name a label queue {body.name[:60]!r}",
                "use up to 50 letters, digits, - and _, the first a letter or digit",
            )
        if not resolve_result_path(self.results, body.images).is_dir():
            raise EquipoiseError("path-kind", f"cannot label {body.images[:200]}: it is not a folder")
        labels = f"{LABELS_FOLDER}/{body.name}"
        queue = QueueReply(name=body.name, images=body.images, labels=labels, kind=body.kind, deployment=False)
        with hold_file_lock(self.state_folder / QUEUES_LOCK_FILE):
            names = {folder.name for folder in self.read_folders()}
            names |= {deployment.name for deployment in self.deployments.list_deployments()}
            if body.name in names:
                raise EquipoiseError(
                    "path-exists", f"cannot add the label queue {body.name}: the name is taken", "choose another"
                )
            LabelStore(self.results / labels).add_classes(body.kind, split_class_names(body.classes))
            self._write_folders([*self.read_folders(), queue])
        return queue

    def remove_folder(self, name: str) -> None:
        """Remove a queue of a folder; its pictures and labels stay. Refuse another name."""
        with hold_file_lock(self.state_folder / QUEUES_LOCK_FILE):
            folders = self.read_folders()
            if name not in {queue.name for queue in folders}:
                raise EquipoiseError(
                    "path-missing",
                    f"cannot remove the label queue {name[:60]!r}: there is none of a folder of pictures",
                    "captures of a deployment are listed as long as it is there",
                )
            self._write_folders([queue for queue in folders if queue.name != name])
        with self._lock:
            self._sessions.pop(name, None)

    def read_folders(self) -> list[QueueReply]:
        """Return the queues of folders."""
        try:
            contents = read_json(self.state_folder / QUEUES_FILE)
        except FileNotFoundError:
            return []
        problem = f"cannot read {self.state_folder / QUEUES_FILE}"
        return decode_json_value(contents, QueuesReply, code="file-damaged", problem=problem).queues

    def _write_folders(self, queues: Sequence[QueueReply]) -> None:
        write_json(self.state_folder / QUEUES_FILE, msgspec.to_builtins(QueuesReply(queues=[*queues])))

    def _read_manifest(self, deployment: Deployment) -> Manifest | None:
        try:
            return Manifest.read(self.results / deployment.bundle / MANIFEST_FILE)
        except (EquipoiseError, OSError):
            return None

    def _describe_deployment(self, deployment: Deployment, manifest: Manifest | None) -> QueueReply:
        folders = DeploymentFolders(results=self.results, name=deployment.name)
        return QueueReply(
            name=deployment.name,
            images=folders.captures.relative_to(self.results).as_posix(),
            labels=folders.labels.relative_to(self.results).as_posix(),
            kind="boxes" if manifest is not None and manifest.kind == "boxes" else "class",
            deployment=True,
        )

    def _start_session(self, queue: QueueReply, manifest: Manifest | None) -> LabelSession:
        labels = self.results / queue.labels
        if not queue.deployment:
            return LabelSession(
                images=resolve_result_path(self.results, queue.images), store=LabelStore(labels), kind=queue.kind
            )
        if manifest is None or not takes_pictures(manifest):
            raise EquipoiseError(
                "bundle-kind", f"cannot label requests to {queue.name}: they are no pictures", "label others"
            )
        return open_capture_session(self.results / queue.images, labels, queue.kind, manifest.classes)

    def _count(self, queue: QueueReply) -> QueueReply:
        """Return a queue with its numbers, or with the reason why it cannot be opened."""
        try:
            state = self._open_queue(queue).queue.state()
        except (EquipoiseError, OSError) as error:
            return replace(queue, problem=str(error))
        return replace(queue, total=state.total, labelled=state.labelled)


def takes_pictures(manifest: Manifest | None) -> bool:
    """Return whether a model answers pictures, so that its captures can be labelled; False without a manifest."""
    return manifest is not None and manifest.kind in KINDS_OF_IMAGES


def split_class_names(texts: Sequence[str]) -> list[str]:
    """Return the class names in texts that may each hold several, separated by commas or line breaks."""
    return [name.strip() for text in texts for name in re.split(r"[,\n]", text) if name.strip()]
