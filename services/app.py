"""Build the prediction service for Ray Serve: serve run services.app:build bundle=bundles/vending."""

import os
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, Self, get_args

import ray
from annotated_types import Ge, Le
from pydantic import BaseModel, Field, ValidationError, model_validator
from ray import serve
from ray.serve import Application

from equipoise.bundle.folder import verify_bundle
from equipoise.command_line import REFUSED, print_error
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import download_folder
from services.http.server import bind_shared_socket
from services.labelling.capture_page import require_images
from services.monitoring.metrics import MULTIPROC_DIR_ENV
from services.replica import REPLICA_DRAIN_SECONDS, Replica
from services.serve_start import announce_address, start_serve_without_proxy
from services.serving.model_versions import ModelSpec
from services.settings import ReplicaSettings

AUTOSCALING_TIMING = {"metrics_interval_s": 1, "look_back_period_s": 5, "upscale_delay_s": 5, "downscale_delay_s": 60}
NUMBER_ERRORS = (
    "int_parsing",
    "int_type",
    "int_from_float",
    "float_parsing",
    "float_type",
    "bool_parsing",
    "bool_type",
    "greater_than_equal",
    "less_than_equal",
)
"""pydantic's types of errors about numbers and truth values, which are no secrets and can be shown"""


class AppSettings(ReplicaSettings):
    """Arguments of `services.app:build`, as NAME=VALUE on the command line or under `args` in YAML."""

    bundle: str | None = Field(None, min_length=1)
    """folder or URL of a published model"""
    models: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], ModelSpec] = Field(default_factory=dict)
    """several models by name, each with its bundle and optionally canary or shadow, share and engine"""
    engine: str | None = None
    """inference engine for `bundle` instead of the bundle's own, for comparisons"""
    replicas: int = Field(1, ge=1, le=10_000)
    """number of replicas; the minimum if max_replicas is given"""
    max_replicas: int | None = Field(None, ge=1, le=10_000)
    """maximum number of replicas, for autoscaling by load"""

    @model_validator(mode="after")
    def require_replica_bounds(self) -> Self:
        """Refuse a maximum number of replicas below the minimum."""
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise EquipoiseError(
                "option-conflict",
                f"max_replicas={self.max_replicas} is below replicas={self.replicas}",
                "raise or omit it",
            )
        return self


def build(args: dict[str, Any]) -> Application:
    """Build the application; on a wrong argument the command line prints one sentence and exits with status 2."""
    from_command_line = not ray.is_initialized()
    try:
        settings = AppSettings.model_validate(args)
        application = build_application(settings)
        if from_command_line:
            announce_address(settings.url)
        return application
    except (EquipoiseError, ValidationError) as error:
        if not from_command_line:  # a deployment from YAML shows the exception itself
            raise
        sys.exit(print_error(format_settings_error(error), REFUSED))


def format_settings_error(
    error: EquipoiseError | ValidationError, settings_class: type[BaseModel] = AppSettings
) -> str:
    """Return a sentence on the first wrong argument, with its code; raise an error that is a bug of a validator."""
    if isinstance(error, EquipoiseError):
        return f"{error} [{error.code}]"
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Exception) and not isinstance(cause, EquipoiseError):
        raise cause
    name = ".".join(map(str, first["loc"]))
    arguments = ", ".join(settings_class.model_fields)
    messages = {"extra_forbidden": f"there is no such argument; choose from {arguments}"}
    message = messages.get(first["type"], first["msg"]).removeprefix("Value error, ")
    if first["type"] in NUMBER_ERRORS and name in settings_class.model_fields:
        message = f"must be {describe_allowed_values(settings_class, name)}, got {first['input']!r}"
    code = cause.code if cause else "option-choice" if first["type"] == "extra_forbidden" else "option-range"
    return f"{f'{name}: ' * bool(name)}{message} [{code}]"


def describe_allowed_values(settings_class: type[BaseModel], name: str) -> str:
    """Return what an argument that is a number or a truth value may be, in words."""
    field = settings_class.model_fields[name]
    kinds = {field.annotation, *get_args(field.annotation)}
    if bool in kinds:
        return "true or false"
    bounds = [mark.ge if isinstance(mark, Ge) else mark.le for mark in field.metadata if isinstance(mark, (Ge, Le))]
    return f"a {'whole ' * (int in kinds)}number" + (f" from {bounds[0]} to {bounds[1]}" if len(bounds) > 1 else "")


def build_application(app_settings: AppSettings) -> Application:
    """Build the application from validated settings, and start Serve without the proxy that would take its port."""
    model_specs = {name: spec.model_dump() for name, spec in app_settings.models.items()}
    paths = {path for spec in app_settings.models.values() for path in spec.bundle_paths()}
    kinds = {verify_bundle(download_folder(path)).kind for path in paths}
    if app_settings.bundle is not None:
        manifest = verify_bundle(download_folder(app_settings.bundle))
        spec = ModelSpec.model_validate({"bundle": make_absolute(app_settings.bundle), "engine": app_settings.engine})
        model_specs[manifest.name] = spec.model_dump()
        kinds.add(manifest.kind)
    if app_settings.label_dir:
        require_images(kinds)
    if not model_specs and not ray.is_initialized():  # in YAML they may be given under user_config
        raise EquipoiseError("option-missing", "there is nothing to serve", "give bundle=FOLDER")
    settings = ReplicaSettings(**app_settings.model_dump(include=set(ReplicaSettings.model_fields)))
    settings.read_api_keys()  # refuse unusable files here, not on a replica
    settings.require_tls()
    settings.require_writable_access_log()
    settings.require_usable_folders()
    if not ray.is_initialized() and "RAY_ADDRESS" not in os.environ:  # replicas of another Ray may be on other machines
        bind_shared_socket(settings.host, settings.port).close()  # refuses a port that another program has
    start_serve_without_proxy(settings.host, settings.port, settings.url)
    metrics_folder = Path(gettempdir()) / f"equipoise-metrics-{settings.port}"
    variables = {MULTIPROC_DIR_ENV: str(metrics_folder), "OMP_NUM_THREADS": "1"}
    deployment = serve.deployment(Replica, name="Predictor").options(
        **scaling_options(app_settings.replicas, app_settings.max_replicas),
        user_config=model_specs,
        ray_actor_options={"num_cpus": 1, "runtime_env": {"env_vars": variables}},
        graceful_shutdown_timeout_s=REPLICA_DRAIN_SECONDS + 5,
        health_check_period_s=2,
    )
    return deployment.bind(settings.model_dump())


def scaling_options(min_replicas: int, max_replicas: int | None) -> dict[str, Any]:
    """Return the deployment options for a fixed number of replicas, or for autoscaling up to `max_replicas`."""
    if max_replicas is None:
        return {"num_replicas": min_replicas}
    policy = {"policy_function": "services.scaling:policy"}
    return {
        "autoscaling_config": {"min_replicas": min_replicas, "max_replicas": max_replicas, "policy": policy}
        | AUTOSCALING_TIMING
    }


def make_absolute(folder_or_url: str) -> str:
    """Return a folder's absolute path, because a replica has another working directory; keep a URL as it is."""
    return folder_or_url if "://" in folder_or_url else str(Path(folder_or_url).absolute())
