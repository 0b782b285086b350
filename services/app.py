"""The service as Ray Serve starts it: serve run services.app:build bundle=bundles/vending."""

import os
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, Self

import ray
from pydantic import BaseModel, Field, ValidationError, model_validator
from ray import serve
from ray.serve import Application

from equipoise.bundle.manifest import verify_bundle
from equipoise.storage.atomic import download_folder
from services.monitoring.metrics import MULTIPROC_DIR_ENV
from services.replica import REPLICA_DRAIN_SECONDS, Replica
from services.serving.model_versions import ModelSpec
from services.settings import ListenSettings, ReplicaSettings

AUTOSCALING_TIMING = {"metrics_interval_s": 1, "look_back_period_s": 5, "upscale_delay_s": 5, "downscale_delay_s": 60}


class AppSettings(ReplicaSettings):
    """What may follow `services.app:build` as NAME=VALUE, or stand under `args` in YAML."""

    bundle: str | None = Field(None, min_length=1)
    """folder or URL of a published model"""
    models: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], ModelSpec] = Field(default_factory=dict)
    """several, by name, each with its bundle and, if wanted, canary, share, engine"""
    engine: str | None = None
    """of `bundle`, instead of its own: for comparisons"""
    replicas: int = Field(1, ge=1, le=10_000)
    max_replicas: int | None = Field(None, ge=1, le=10_000)
    """scale from `replicas` up to so many, and back"""

    @model_validator(mode="after")
    def require_replica_bounds(self) -> Self:
        """Fewer at most than at least cannot be."""
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas={self.max_replicas} is below replicas={self.replicas}: give more, or none")
        return self


def build(args: dict[str, Any]) -> Application:
    """The application. Of an argument that cannot be, the command line is told in a sentence."""
    by_hand = not ray.is_initialized()
    try:
        asked = AppSettings.model_validate(args)
        found = build_application(asked)
        if by_hand:
            print_address(asked)
        return found
    except ValueError as error:
        if not by_hand:  # within a deployment from YAML, which shows what is raised
            raise
        print(f"error: {format_validation_error(error)}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


def print_address(settings: ListenSettings) -> None:
    """Say where it will answer: what `serve run` prints is the port of a proxy that is not there.

    Ray, which is about to be started, would tell its makers of it too.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    scheme = "https" if settings.certfile else "http"
    print(f"will answer at {scheme}://{settings.host}:{settings.port}/", file=sys.stderr)  # noqa: T201


def format_validation_error(error: ValueError, settings_class: type[BaseModel] = AppSettings) -> str:
    """What is wrong, of the first thing that is."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    known = ", ".join(settings_class.model_fields)
    wrong = {"extra_forbidden": f"there is no such argument; there are {known}"}
    found = wrong.get(first["type"], first["msg"]).removeprefix("Value error, ")
    return f"{name}: {found}" if name else found


def build_application(app_settings: AppSettings) -> Application:
    """The application; also sees to it that no proxy of Ray's takes its port."""
    wanted = {name: one.model_dump() for name, one in app_settings.models.items()}
    for path in {path for one in app_settings.models.values() for path in one.bundle_paths()}:
        verify_bundle(download_folder(path))
    if app_settings.bundle is not None:
        found = verify_bundle(download_folder(app_settings.bundle))
        one = ModelSpec.model_validate({"bundle": make_absolute(app_settings.bundle), "engine": app_settings.engine})
        wanted[found["name"]] = one.model_dump()
    if not wanted and not ray.is_initialized():  # in YAML they may stand under user_config
        raise ValueError("there is nothing to serve: give bundle=FOLDER")
    settings = ReplicaSettings(**app_settings.model_dump(include=set(ReplicaSettings.model_fields)))
    settings.read_api_keys()  # files that cannot be used are refused here, not on a replica
    settings.require_tls()
    settings.require_writable_access_log()
    settings.require_usable_folders()
    start_serve_without_proxy()
    shared = Path(gettempdir()) / f"equipoise-metrics-{settings.port}"
    variables = {MULTIPROC_DIR_ENV: str(shared), "OMP_NUM_THREADS": "1"}
    deployment = serve.deployment(Replica, name="Predictor").options(
        **scaling_options(app_settings.replicas, app_settings.max_replicas),
        user_config=wanted,
        ray_actor_options={"num_cpus": 1, "runtime_env": {"env_vars": variables}},
        graceful_shutdown_timeout_s=REPLICA_DRAIN_SECONDS + 5,
        health_check_period_s=2,
    )
    return deployment.bind(settings.model_dump())


def scaling_options(min_replicas: int, max_replicas: int | None) -> dict[str, Any]:
    """A number of replicas, or how it follows the load."""
    if max_replicas is None:
        return {"num_replicas": min_replicas}
    policy = {"policy_function": "services.scaling:policy"}
    return {
        "autoscaling_config": {"min_replicas": min_replicas, "max_replicas": max_replicas, "policy": policy}
        | AUTOSCALING_TIMING
    }


def make_absolute(folder_or_url: str) -> str:
    """A folder's whole path: a replica works elsewhere."""
    return folder_or_url if "://" in folder_or_url else str(Path(folder_or_url).absolute())


def start_serve_without_proxy() -> None:
    """Start Serve without proxies, unless it runs already or is being started by someone who says so himself."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_worker_niceness", "0")  # a replica is what this machine is there for
    ray.init(namespace="serve")
    serve.start(proxy_location="Disabled")
