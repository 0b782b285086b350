"""Check KubeRay manifests against the published schemas, the operator's own rules and Equipoise's security rules.

kuberay_schema.json has the names and types of the JSON schemas that KubeRay and Kubernetes publish: `kubectl apply`
rejects a field that is not among them or, worse, ignores it. Rules that KubeRay's operator applies only once it has the
manifest are checked here too.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import ray
import yaml
from jsonschema import Draft202012Validator, ValidationError

from equipoise.type_aliases import JsonObject

CLUSTER_SPEC_PATHS = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
"""path of the cluster's definition in each kind of manifest"""
MAX_NAME_LETTERS = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
"""maximum length of a name; names of pods and services are built from it"""
NAME_PATTERN = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
YAML_TYPE_NAMES = {"object": "mapping", "array": "list"}


def is_kubernetes_manifest(documents: list[Any]) -> bool:
    """Return whether any of the YAML documents is a Kubernetes manifest."""
    return any(isinstance(document, dict) and "apiVersion" in document for document in documents)


def validate_manifests(documents: list[Any]) -> list[str]:
    """Return the problems of all manifests of a file, one sentence each."""
    return [problem for document in documents if document is not None for problem in validate_manifest(document)]


@cache
def load_kuberay_schema() -> JsonObject:
    """Load the JSON schemas that KubeRay and Kubernetes publish for each supported kind of manifest."""
    schema: JsonObject = json.loads((files("jobs.cluster") / "kuberay_schema.json").read_text(encoding="utf-8"))
    return schema


@cache
def build_validator(kind: str) -> Draft202012Validator:
    """Build the validator of a kind of manifest."""
    schema = load_kuberay_schema()
    return Draft202012Validator(schema["kinds"][kind] | {"$defs": schema["$defs"]})


def validate_manifest(manifest: Any) -> list[str]:
    """Return the problems of one manifest, one sentence each."""
    kinds = load_kuberay_schema()["kinds"]
    kind = (
        f"{manifest.get('apiVersion')} {manifest.get('kind')}"
        if isinstance(manifest, dict)
        else "a document that is no mapping"
    )
    if kind not in kinds:
        return [f"{kind} is not supported here: choose one of {', '.join(kinds)}"]
    if problems := [*check_schema(manifest, kind)]:
        return problems
    if manifest["kind"] not in CLUSTER_SPEC_PATHS:
        return []
    return [*check_operator_rules(manifest), *check_security(manifest), *check_serve_config(manifest)]


def check_schema(manifest: JsonObject, kind: str) -> Iterator[str]:
    """Report unknown fields, values of a wrong type and missing fields, at any depth."""
    given = drop_null_fields(manifest)
    problems = (describe_schema_error(error, given) for error in build_validator(kind).iter_errors(given))
    yield from dict.fromkeys(problem for sentences in problems for problem in sentences)


def drop_null_fields(value: Any) -> Any:
    """Return a value without the fields that are null, at any depth: Kubernetes takes them as not given."""
    if isinstance(value, dict):
        return {name: drop_null_fields(item) for name, item in value.items() if item is not None}
    return [drop_null_fields(item) for item in value] if isinstance(value, list) else value


def describe_schema_error(error: ValidationError, manifest: JsonObject) -> list[str]:
    """Return one sentence for each problem behind an error of the schema, with the path of its field."""
    path, value, expected = format_field_path(manifest, error.absolute_path), error.instance, error.validator_value
    if error.validator == "required":
        return [f"{path}.{name} is missing" for name in expected if name not in value]
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        return [f"{path}.{name}: {suggest_field(name, known)}" for name in value if name not in known]
    if error.validator == "enum":
        return [f"{path}: {value!r} is not one of {', '.join(map(repr, expected))}"]
    type_name = error.schema.get("title") or describe_types(expected)
    return [f"{path}: {value!r} is not of type {type_name}{suggest_correction(value, type_name)}"]


def describe_types(types: str | list[str]) -> str:
    """Return the types that a schema allows in the words of YAML."""
    return " or ".join(YAML_TYPE_NAMES.get(name, name) for name in ([types] if isinstance(types, str) else types))


def format_field_path(manifest: JsonObject, keys: Iterable[str | int]) -> str:
    """Return the path of a field as in `RayCluster.spec.workerGroupSpecs[0]`."""
    path: str = manifest["kind"]
    value: Any = manifest
    for key in keys:
        path += f"[{key}]" if isinstance(value, list) else f".{key}"
        value = value[key]
    return path


def suggest_field(name: Any, known: Iterable[str]) -> str:
    """Return that there is no field of a name, with the most similar one that there is."""
    matches = difflib.get_close_matches(str(name), known, 1)
    return f"there is no such field{f'; did you mean {matches[0]}?' if matches else ''}"


def suggest_correction(value: Any, type_name: str) -> str:
    """Return the end of an error message that says what to write instead; empty where that is unknown."""
    if type_name in ("string", "quantity") and isinstance(value, bool | int | float):  # YAML parsed a string as this
        return f": write {json.dumps(str(value).lower() if isinstance(value, bool) else str(value))}"
    return ", such as 500m, 2 or 8Gi" if type_name == "quantity" else ""


def find_cluster_spec(manifest: JsonObject) -> tuple[str, JsonObject | None]:
    """Return the path and value of the cluster's definition in a manifest; None where it defines no cluster."""
    value: Any = manifest
    for name in (path := CLUSTER_SPEC_PATHS[manifest["kind"]]).split("."):
        value = value.get(name) or {}
    return f"{manifest['kind']}.{path}", value or None


def list_pod_groups(path: str, cluster_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the path and definition of the head and of each group of workers."""
    yield f"{path}.headGroupSpec", cluster_spec["headGroupSpec"]
    for index, group in enumerate(cluster_spec.get("workerGroupSpecs") or []):
        yield f"{path}.workerGroupSpecs[{index}]", group


def group_containers(group: JsonObject) -> list[JsonObject]:
    """Return the containers of each pod of a group; the first one runs Ray."""
    pod: JsonObject = (group.get("template") or {}).get("spec") or {}
    return pod.get("containers") or []


def check_operator_rules(manifest: JsonObject) -> Iterator[str]:
    """Report what KubeRay's operator would reject later and no schema can express."""
    kind, name = manifest["kind"], manifest["metadata"].get("name") or ""
    if not NAME_PATTERN.fullmatch(name) or len(name) > MAX_NAME_LETTERS[kind]:
        yield (
            f"{kind}.metadata.name: {name!r} is not a valid name: "
            f"use lowercase letters, digits and -, {MAX_NAME_LETTERS[kind]} at most"
        )
    spec, (path, cluster_spec) = manifest["spec"], find_cluster_spec(manifest)
    if cluster_spec is None:
        if not spec.get("clusterSelector"):
            yield f"{path} is missing: define a cluster there, or select an existing one with clusterSelector"
        return
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield f"{kind}.spec.ttlSecondsAfterFinished: this has no effect without shutdownAfterJobFinishes"
    for group_path, group in list_pod_groups(path, cluster_spec):
        if not group_containers(group):
            yield f"{group_path}.template.spec.containers: give at least one"
        if group.get("maxReplicas") is not None and (group.get("minReplicas") or 0) > group["maxReplicas"]:
            yield f"{group_path}: minReplicas {group['minReplicas']} is above maxReplicas {group['maxReplicas']}"


def check_security(manifest: JsonObject) -> Iterator[str]:
    """Report a cluster without a token, with another version of Ray, with work on its head or without known limits."""
    path, cluster_spec = find_cluster_spec(manifest)
    if cluster_spec is None:
        return
    if (cluster_spec.get("authOptions") or {}).get("mode") != "token":
        yield f"{path}.authOptions: anyone who reaches a port can run code: set mode: token"
    if cluster_spec.get("rayVersion") != ray.__version__:
        yield f"{path}.rayVersion: {cluster_spec.get('rayVersion')} is not {ray.__version__}, which is installed here"
    if (cluster_spec["headGroupSpec"].get("rayStartParams") or {}).get("num-cpus") != "0":
        yield f'{path}.headGroupSpec.rayStartParams: set num-cpus: "0", so that no work runs there'
    hooks = [str(container.get("lifecycle")) for container in group_containers(cluster_spec["headGroupSpec"])[:1]]
    autoscales = cluster_spec.get("enableInTreeAutoscaling") and manifest["kind"] != "RayService"
    if autoscales and any("jobs.cluster.limits" not in hook for hook in hooks):
        yield (
            f"{path}.headGroupSpec: jobs cannot tell how far the cluster may grow: "
            "let postStart run python -m jobs.cluster.limits"
        )
    for group_path, group in list_pod_groups(path, cluster_spec):
        for container in group_containers(group)[:1]:
            image = container.get("image") or "none"
            if ray.__version__ not in image.rpartition(":")[2]:
                yield f"{group_path}: the tag of image {image} does not name Ray {ray.__version__}"


def check_serve_config(manifest: JsonObject) -> Iterator[str]:
    """Report what Ray Serve would reject or ignore in its part of a RayService."""
    from ray.serve.schema import ServeDeploySchema

    if manifest["kind"] != "RayService":
        return
    path = "RayService.spec.serveConfigV2"
    try:
        config = yaml.safe_load(manifest["spec"].get("serveConfigV2") or "")
        parsed = ServeDeploySchema.model_validate(config).model_dump(exclude_unset=True, mode="json")
    except yaml.YAMLError as error:
        yield f"{path} is not valid YAML: {' '.join(str(error).split())}"
    except ValueError as error:
        yield f"{path}: Ray Serve rejects it: {' '.join(str(error).split())}"
    else:
        yield from (f"{path}{field}: Ray Serve has no such field" for field in find_dropped_fields(config, parsed))
        if parsed.get("proxy_location") == "Disabled":
            yield from check_readiness_probe(manifest)


def check_readiness_probe(manifest: JsonObject) -> Iterator[str]:
    """Report workers without a readiness probe: KubeRay's default probes Ray's proxy and would wait forever."""
    path, cluster_spec = find_cluster_spec(manifest)
    if cluster_spec is None:
        return
    for group_path, group in list_pod_groups(path, cluster_spec):
        for container in group_containers(group)[:1]:
            if not container.get("readinessProbe") and group is not cluster_spec["headGroupSpec"]:
                yield f"{group_path}: without Ray's proxy no pod becomes ready: add a readinessProbe that gets /ready"


def find_dropped_fields(config: Any, parsed: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that the configuration has and its parsed form does not."""
    if isinstance(config, dict) and isinstance(parsed, dict):
        for name, value in config.items():
            if name in parsed:
                yield from find_dropped_fields(value, parsed[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(config, list) and isinstance(parsed, list):
        for index, (item, parsed_item) in enumerate(zip(config, parsed, strict=False)):
            yield from find_dropped_fields(item, parsed_item, f"{path}[{index}]")
