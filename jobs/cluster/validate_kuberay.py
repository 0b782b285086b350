"""Whether KubeRay's manifests mean what they say, and keep shut what Equipoise keeps shut.

kuberay_schema.json has the names and types that KubeRay and Kubernetes publish: a field that is none of them is refused
by
`kubectl apply`, or worse, is not. What a cluster's operator would find only once it is there is looked at here too.
"""

import difflib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import ray
import yaml

from equipoise.type_aliases import JsonObject

CLUSTER_SPEC_PATHS = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
"""where each kind says what its cluster is"""
MAX_NAME_LETTERS = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
"""letters of a name, which pods and services carry on"""
NAME_PATTERN = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
QUANTITY_PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
PYTHON_TYPES_BY_KIND: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "integer or string": (int, str),
    "quantity": (int, str),
    "list": (list,),
    "mapping": (dict,),
}


def is_kubernetes_manifest(documents: list[Any]) -> bool:
    """Whether they are Kubernetes' at all."""
    return any(isinstance(one, dict) and "apiVersion" in one for one in documents)


def validate_manifests(documents: list[Any]) -> list[str]:
    """All that is, in sentences."""
    return [sentence for one in documents if one is not None for sentence in validate_manifest(one)]


@cache
def load_kuberay_schema() -> JsonObject:
    """What manifests may say."""
    found: JsonObject = json.loads((files("jobs.cluster") / "kuberay_schema.json").read_text(encoding="utf-8"))
    return found


def validate_manifest(manifest: Any) -> list[str]:
    """What is wrong with one of them."""
    known = load_kuberay_schema()["kinds"]
    named = f"{manifest.get('apiVersion')} {manifest.get('kind')}" if isinstance(manifest, dict) else "no mapping"
    if named not in known:
        return [f"{named} is not known here: choose one of {', '.join(known)}"]
    if found := [*check_schema(manifest, known[named], manifest["kind"])]:
        return found
    if manifest["kind"] not in CLUSTER_SPEC_PATHS:
        return []
    return [*check_operator_rules(manifest), *check_security(manifest), *check_serve_config(manifest)]


def check_schema(value: Any, schema: Any, path: str) -> Iterator[str]:
    """Fields that there are not, values of another type, and what has to be there."""
    if isinstance(schema, int):
        schema = load_kuberay_schema()["shapes"][schema]
    if schema == "any":
        return
    kind = (
        schema
        if isinstance(schema, str)
        else "any"
        if "one of" in schema
        else "list"
        if "each" in schema
        else "mapping"
    )
    if not matches_kind(value, kind):
        yield f"{path}: {value!r} is no {kind}{suggest_correction(value, kind)}"
    elif kind == "any" and value not in schema["one of"]:
        yield f"{path}: {value!r} is none of {', '.join(map(repr, schema['one of']))}"
    elif kind == "list":
        for at, one in enumerate(value):
            yield from check_schema(one, schema["each"], f"{path}[{at}]")
    elif kind == "mapping":
        yield from check_mapping_fields(value, schema, path)


def matches_kind(value: Any, kind: str) -> bool:
    """Whether it is of that type, as YAML has read it."""
    if kind == "quantity" and not QUANTITY_PATTERN.fullmatch(str(value)):
        return False
    return kind == "any" or (
        isinstance(value, PYTHON_TYPES_BY_KIND[kind]) and isinstance(value, bool) <= (kind == "boolean")
    )


def suggest_correction(value: Any, kind: str) -> str:
    """What to write instead, where that is known."""
    if kind in ("string", "quantity") and isinstance(value, bool | int | float):  # YAML took a text for something else
        return f": write {json.dumps(str(value).lower() if isinstance(value, bool) else str(value))}"
    return ", such as 500m, 2 or 8Gi" if kind == "quantity" else ""


def check_mapping_fields(value: JsonObject, schema: JsonObject, path: str) -> Iterator[str]:
    """The same of what a mapping holds."""
    for name in schema.get("required", []):
        if value.get(name) is None:
            yield f"{path}.{name} is missing"
    for name, one in value.items():
        if one is None:  # as if it were left out
            continue
        if "values" in schema or name in schema["fields"]:
            yield from check_schema(
                one, schema["values"] if "values" in schema else schema["fields"][name], f"{path}.{name}"
            )
        else:
            near = difflib.get_close_matches(str(name), schema["fields"], 1)
            yield f"{path}.{name}: there is no such field{f', perhaps {near[0]}' if near else ''}"


def find_cluster_spec(manifest: JsonObject) -> tuple[str, JsonObject | None]:
    """Where a manifest says what its cluster is, and that."""
    held: Any = manifest
    for name in (path := CLUSTER_SPEC_PATHS[manifest["kind"]]).split("."):
        held = held.get(name) or {}
    return f"{manifest['kind']}.{path}", held or None


def list_pod_groups(path: str, cluster_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Its head and its groups of workers."""
    yield f"{path}.headGroupSpec", cluster_spec["headGroupSpec"]
    for at, one in enumerate(cluster_spec.get("workerGroupSpecs") or []):
        yield f"{path}.workerGroupSpecs[{at}]", one


def group_containers(group: JsonObject) -> list[JsonObject]:
    """Of each of its pods; the first one is Ray's."""
    pod: JsonObject = (group.get("template") or {}).get("spec") or {}
    return pod.get("containers") or []


def check_operator_rules(manifest: JsonObject) -> Iterator[str]:
    """What KubeRay's operator would say once it is there, where no schema can."""
    kind, name = manifest["kind"], manifest["metadata"].get("name") or ""
    if not NAME_PATTERN.fullmatch(name) or len(name) > MAX_NAME_LETTERS[kind]:
        yield (
            f"{kind}.metadata.name: {name!r} is no name: small letters, digits and -, {MAX_NAME_LETTERS[kind]} at most"
        )
    spec, (where, asked) = manifest["spec"], find_cluster_spec(manifest)
    if asked is None:
        if not spec.get("clusterSelector"):
            yield f"{where} is missing: say what the cluster is, or name one by clusterSelector"
        return
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield f"{kind}.spec.ttlSecondsAfterFinished: there is nothing to wait for without shutdownAfterJobFinishes"
    for place, group in list_pod_groups(where, asked):
        if not group_containers(group):
            yield f"{place}.template.spec.containers: give one at least"
        if group.get("maxReplicas") is not None and (group.get("minReplicas") or 0) > group["maxReplicas"]:
            yield f"{place}: minReplicas {group['minReplicas']} is above maxReplicas {group['maxReplicas']}"


def check_security(manifest: JsonObject) -> Iterator[str]:
    """A cluster without a token, of another Ray than ours, or with work on its head."""
    where, asked = find_cluster_spec(manifest)
    if asked is None:
        return
    if (asked.get("authOptions") or {}).get("mode") != "token":
        yield f"{where}.authOptions: whoever reaches a port may run code: set mode: token"
    if asked.get("rayVersion") != ray.__version__:
        yield f"{where}.rayVersion: {asked.get('rayVersion')} is not {ray.__version__}, which is installed here"
    if (asked["headGroupSpec"].get("rayStartParams") or {}).get("num-cpus") != "0":
        yield f'{where}.headGroupSpec.rayStartParams: give it num-cpus: "0", so that no work runs there'
    started = [str(one.get("lifecycle")) for one in group_containers(asked["headGroupSpec"])[:1]]
    grows = asked.get("enableInTreeAutoscaling") and manifest["kind"] != "RayService"
    if grows and any("jobs.cluster.limits" not in one for one in started):
        yield (
            f"{where}.headGroupSpec: jobs cannot tell how far it may grow: "
            "have postStart run python -m jobs.cluster.limits"
        )
    for place, group in list_pod_groups(where, asked):
        for container in group_containers(group)[:1]:
            image = container.get("image") or "none"
            if ray.__version__ not in image.rpartition(":")[2]:
                yield f"{place}: the tag of image {image} does not say that it is of Ray {ray.__version__}"


def check_serve_config(manifest: JsonObject) -> Iterator[str]:
    """What Ray Serve would not take of its part, or would pass over."""
    from ray.serve.schema import ServeDeploySchema

    if manifest["kind"] != "RayService":
        return
    where = "RayService.spec.serveConfigV2"
    try:
        config = yaml.safe_load(manifest["spec"].get("serveConfigV2") or "")
        kept = ServeDeploySchema.model_validate(config).model_dump(exclude_unset=True, mode="json")
    except yaml.YAMLError as error:
        yield f"{where} is no YAML: {' '.join(str(error).split())}"
    except ValueError as error:
        yield f"{where}: Ray Serve refuses it: {' '.join(str(error).split())}"
    else:
        yield from (f"{where}{one}: Ray Serve knows no such field" for one in find_dropped_fields(config, kept))
        if kept.get("proxy_location") == "Disabled":
            yield from check_readiness_probe(manifest)


def check_readiness_probe(manifest: JsonObject) -> Iterator[str]:
    """Workers that KubeRay would wait for without end: it asks for Ray's proxy unless it is told what else to ask."""
    where, asked = find_cluster_spec(manifest)
    if asked is None:
        return
    for place, group in list_pod_groups(where, asked):
        for container in group_containers(group)[:1]:
            if not container.get("readinessProbe") and group is not asked["headGroupSpec"]:
                yield f"{place}: without Ray's proxy no pod is ready unless a readinessProbe says when: ask for /ready"


def find_dropped_fields(config: Any, parsed: Any, path: str = "") -> Iterator[str]:
    """Fields that were given and are not kept."""
    if isinstance(config, dict) and isinstance(parsed, dict):
        for name, one in config.items():
            yield from (
                find_dropped_fields(one, parsed[name], f"{path}.{name}") if name in parsed else [f"{path}.{name}"]
            )
    elif isinstance(config, list) and isinstance(parsed, list):
        for at, (one, other) in enumerate(zip(config, parsed, strict=False)):
            yield from find_dropped_fields(one, other, f"{path}[{at}]")
