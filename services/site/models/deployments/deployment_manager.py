"""Deployments of a site: each change is written down first, and then handed to Ray Serve as one document.

A change that Serve does not take is undone. A site that is killed between the two hands the document over when it
starts again.
"""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from equipoise.bundle.folder import verify_bundle
from equipoise.bundle.manifest import Manifest
from equipoise.errors import EquipoiseError
from jobs.cluster.processes import find_free_ports
from jobs.site_ray.detached_ray import STATE_FOLDER
from services.http.server import require_unused_port
from services.site.models.bundle_catalog import resolve_bundle
from services.site.models.deployments.deployment import Deployment, require_deployment_name
from services.site.models.deployments.deployment_messages import DeployBody
from services.site.models.deployments.deployment_store import DeploymentStore, HandOver
from services.site.models.deployments.serve_api import ServeApi
from services.site.models.deployments.serve_config import DeploymentFolders, ServeState

ABSENT = ServeState(state="absent", message="Ray Serve does not run it")


class DeploymentManager:
    """Deploy, canary, promote, roll back and undeploy, each as a person or a program asks for it."""

    def __init__(self, results: Path, serve: ServeApi | None) -> None:
        """Change what `serve` runs; None if the site has no Ray, and then nothing can be changed."""
        self.results, self._serve = results.absolute(), serve
        self.store = DeploymentStore(self.results / STATE_FOLDER)

    @property
    def serve(self) -> ServeApi:
        """Serve of the site's Ray; refuse a change where there is none."""
        if self._serve is None:
            raise EquipoiseError(
                "cluster-unreachable", "cannot deploy: this site shows results alone", "start it with equipoise up"
            )
        return self._serve

    def list_deployments(self) -> list[Deployment]:
        """Return all deployments by name."""
        return self.store.list_deployments()

    def read_states(self) -> dict[str, ServeState]:
        """Return the state of each deployment by name."""
        states = self.serve.read_states()
        return {entry.name: states.get(entry.name, ABSENT) for entry in self.store.list_deployments()}

    def apply_document(self) -> None:
        """Hand the present document to Serve, as after a restart of the site or of Ray."""
        hand_over = self._prepare_hand_over()
        with self.store.lock():  # an older document must not come after a newer one
            hand_over(self.store.list_deployments())

    def deploy_bundle(self, body: DeployBody) -> Deployment:
        """Start a service of a bundle."""
        bundle, manifest = self._verify(body.bundle, "deploy")
        name = require_deployment_name(body.name or manifest.name.replace(".", "-"))

        def build(others: list[Deployment]) -> Deployment:
            if any(other.name == name for other in others):
                raise EquipoiseError(
                    "path-exists", f"cannot deploy {bundle} as {name}: that name is taken", "give another name"
                )
            deployment = Deployment(
                name=name,
                model=manifest.name,
                bundle=bundle,
                port=choose_port(body.port, others),
                requires_key=body.requires_key,
                replicas=body.replicas,
            )
            if body.requires_key:
                self._write_key(name)
            return deployment.record_change("deploy", bundle, time.time())

        return self.store.add_deployment(build, self._prepare_hand_over())

    def start_canary(self, name: str, bundle: str, share: float) -> Deployment:
        """Let a bundle answer a share of the requests."""
        bundle, manifest = self._require_same_model(name, bundle, "canary")
        _, current = self._verify(self.store.find_deployment(name).bundle, "compare with")
        manifest.require_comparable(current, f"cannot start {bundle} as canary of {name}")
        return self._change(name, lambda deployment: deployment.start_canary(bundle, share, time.time()))

    def stop_canary(self, name: str) -> Deployment:
        """Let the canary answer no more."""
        return self._change(name, lambda deployment: deployment.stop_canary(time.time()))

    def promote_canary(self, name: str) -> Deployment:
        """Let the canary answer all requests."""
        return self._change(name, lambda deployment: deployment.promote_canary(time.time()))

    def promote_bundle(self, name: str, bundle: str) -> Deployment:
        """Let another bundle answer all requests."""
        bundle, _ = self._require_same_model(name, bundle, "new version")
        return self._change(name, lambda deployment: deployment.promote_bundle(bundle, time.time()))

    def roll_back(self, name: str, to_bundle: str | None = None) -> Deployment:
        """Let the previous bundle answer again; refuse it if this is not `to_bundle`, where one is given."""
        previous = self.store.find_deployment(name).previous
        if previous is not None:
            self._verify(previous, f"roll back {name} to")
        return self._change(name, lambda deployment: deployment.roll_back(time.time(), to_bundle))

    def undeploy(self, name: str) -> Deployment:
        """End a service; its captures, labels and drift state stay below the results folder."""
        return self.store.remove_deployment(name, self._prepare_hand_over())

    def read_key(self, name: str) -> str | None:
        """Return the key with which the site asks a service; None if it requires none."""
        if not self.store.find_deployment(name).requires_key:
            return None
        file = DeploymentFolders(results=self.results, name=name).keys_file
        try:
            return file.read_text("utf-8").split()[0]
        except (OSError, ValueError, IndexError):
            problem = f"cannot ask {name}: its key file {file.name} is missing or damaged"
            raise EquipoiseError("file-damaged", problem, "undeploy it, and deploy it again") from None

    def _prepare_hand_over(self) -> HandOver:
        """Return the call that hands all deployments to Serve; refuse a change where there is no Serve."""
        serve = self.serve
        return lambda deployments: serve.apply_deployments(deployments, self.results)

    def _change(self, name: str, change: Callable[[Deployment], Deployment]) -> Deployment:
        return self.store.change_deployment(name, change, self._prepare_hand_over())

    def _verify(self, bundle: str, action: str) -> tuple[str, Manifest]:
        """Return the path of a bundle below the results folder, in one spelling, and its manifest."""
        try:
            folder = resolve_bundle(self.results, bundle)
            return folder.relative_to(self.results).as_posix(), verify_bundle(folder)
        except EquipoiseError as error:
            raise error.within(f"cannot {action} {bundle[:200]}") from None

    def _require_same_model(self, name: str, bundle: str, role: str) -> tuple[str, Manifest]:
        """Return what `_verify` does; refuse another model, which clients and the monitor would not know."""
        model = self.store.find_deployment(name).model
        bundle, manifest = self._verify(bundle, "use")
        if manifest.name != model:
            raise EquipoiseError(
                "models-incompatible",
                f"cannot use {bundle} as {role} of {name}: its model is {manifest.name}, not {model}",
                f"publish it with --name {model}, or deploy it by itself",
            )
        return bundle, manifest

    def _write_key(self, name: str) -> None:
        """Write a new key to the service's file, which its owner alone can read; an older key stays."""
        path = DeploymentFolders(results=self.results, name=name).keys_file
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, ValueError):
            if path.read_text("utf-8").split():
                return
        path.unlink(missing_ok=True)  # damaged, such as by a site that was killed while it wrote
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_urlsafe(24)}\n")


def choose_port(wanted: int | None, others: list[Deployment]) -> int:
    """Return the port for a new service: the one that is asked for if nobody listens there, otherwise a free one."""
    taken = {other.port for other in others}
    if wanted is None:
        return next(port for port in find_free_ports(len(taken) + 1) if port not in taken)
    if wanted in taken:
        raise EquipoiseError("port-in-use", f"cannot listen on port {wanted}: another deployment has it", "give none")
    require_unused_port("127.0.0.1", wanted)
    return wanted
