"""Page of the arguments of both services, from their pydantic settings."""

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.generate.fields import format_default, format_type
from docs.generate.markdown import MISSING, build_page, format_code, format_fence, format_table, start_sentence
from jobs.command_options.class_fields import REQUIRED, list_fields, read_attribute_docs
from services.app import AppSettings
from services.limits import Limits
from services.pages import PagesSettings
from services.serving.model_versions import ModelSpec
from services.settings import ListenSettings, ReplicaSettings

NESTED = {"models": "#one-of-several-models", "limits": "#limits"}
"""arguments that are objects, with the section that lists their keys"""
SERVICES_INTRODUCTION = """\
There are two services. `services.app` predicts and watches for drift; `services.pages` shows the pages of runs and
sweeps while they grow. Both run under Ray Serve, and take their arguments as `NAME=VALUE` on the command line, or under
`args` of an application in a YAML file for `serve deploy`. An argument that does not exist, or that is out of range, is
refused before anything starts: one sentence, exit status 2. A dash in the column of defaults means that nothing is
set. Relative paths are relative to the folder that the command is started in."""
EXAMPLE_COMMAND = """\
serve run services.app:build bundle=bundles/vending port=8000 reload_seconds=5
serve run services.pages:build runs=runs port=8080"""
EXAMPLE_YAML = """\
applications:
  - name: equipoise
    route_prefix: /
    import_path: services.app:build
    args:
      models:
        vending: {bundle: bundles/vending, canary: bundles/vending-2, share: 0.1}"""
RULES = """\
- `services.app` needs `bundle` or `models`, or both. `models` can only be given in YAML.
- `host` beyond this machine needs `api_keys_file`.
- `certfile` and `keyfile` need each other.
- `max_replicas` must not be below `replicas`; without it the number of replicas is fixed.
- `engine` applies to `bundle`; each of `models` has an `engine` of its own.
- `requests_per_false_alarm`, `report_seconds`, `drift_time_fraction`, `state_dir` and `webhook` have no effect with
  `drift=false`.
- `max_captures` has no effect without `capture_dir`.
- `label_dir` needs `capture_dir`; both are folders then, never URLs, and a model of images is served.
- `state_dir` is a folder, never a URL. `capture_dir` may be either."""


def build_service_arguments_page() -> str:
    """Build the page of both services, docs/reference/service-arguments.md."""
    sections: Sequence[tuple[str, str, Any, Sequence[str]]] = (
        ("Both services", "The address to listen on, and who may ask.", ListenSettings, ()),
        ("services.app", "What is served, and by how many replicas.", AppSettings, own_names(AppSettings)),
        (
            "Requests, drift and captures",
            "Further arguments of `services.app`.",
            ReplicaSettings,
            own_names(ReplicaSettings),
        ),
        (
            "services.pages",
            "The only arguments that differ from those of both services.",
            PagesSettings,
            own_names(PagesSettings),
        ),
        ("One of several models", "Keys of each of `models`, below the name of the model.", ModelSpec, ()),
    )
    return build_page(
        "Service arguments",
        SERVICES_INTRODUCTION,
        format_fence("sh", EXAMPLE_COMMAND, "an example"),
        format_fence("yaml", EXAMPLE_YAML),
        "## Which need which",
        RULES,
        *(
            block
            for title, text, settings, names in sections
            for block in (f"## {title}", text, format_settings_table(settings, names or tuple(settings.model_fields)))
        ),
        "## Limits",
        "Keys of `limits`, which can only be given in YAML. A request beyond a limit is answered with status 413, 408,"
        " 429 or 503, and one sentence. Every limit must be above 0.",
        format_limits_table(),
    )


def own_names(settings: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of the arguments that a settings class itself defines or changes."""
    return tuple(name for name in settings.model_fields if name in settings.__annotations__)


def format_settings_table(settings: type[BaseModel], names: Sequence[str]) -> str:
    """Format arguments of a settings class as a table."""
    docs = read_attribute_docs(settings)
    rows = []
    for name in names:
        field = settings.model_fields[name]
        doc = start_sentence(docs.get(name, ""))
        kind = f"[object]({NESTED[name]})" if name in NESTED else format_field_type(field)
        rows.append((format_code(name), kind, MISSING if name in NESTED else format_field_default(field), doc))
    return format_table(("argument", "type", "default", "meaning"), rows)


def format_field_type(field: FieldInfo) -> str:
    """Format the type of an argument with its bounds; whether it may be left out shows in its default."""
    kinds = (
        [part for part in get_args(field.annotation) if part is not type(None)] if get_origin(field.annotation) else []
    )
    low = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), None)
    high = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    bounds = "" if low is None else f" from {low:.12g} to {high:.12g}"
    return format_type(kinds[0] if kinds else field.annotation) + bounds


def format_field_default(field: FieldInfo) -> str:
    """Format the default of an argument."""
    return format_default(REQUIRED if field.default is PydanticUndefined else field.default)


def format_limits_table() -> str:
    """Format the limits of a replica as a table."""
    rows = [
        (
            format_code(field.name),
            format_type(field.annotation),
            format_default(field.default),
            start_sentence(field.doc),
        )
        for field in list_fields(Limits)
    ]
    return format_table(("limit", "type", "default", "meaning"), rows)
