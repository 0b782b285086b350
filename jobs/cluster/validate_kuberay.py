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

Facts = dict[str, Any]

CLUSTERS = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
"""where each kind says what its cluster is"""
LONGEST = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
"""letters of a name, which pods and services carry on"""
NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "integer or string": (int, str),
    "quantity": (int, str),
    "list": (list,),
    "mapping": (dict,),
}


def manifests(documents: list[Any]) -> bool:
    """Whether they are Kubernetes' at all."""
    return any(isinstance(one, dict) and "apiVersion" in one for one in documents)


def wrong(documents: list[Any]) -> list[str]:
    """All that is, in sentences."""
    return [sentence for one in documents if one is not None for sentence in of_one(one)]


@cache
def published() -> Facts:
    """What manifests may say."""
    found: Facts = json.loads((files("jobs.cluster") / "kuberay_schema.json").read_text(encoding="utf-8"))
    return found


def of_one(manifest: Any) -> list[str]:
    """What is wrong with one of them."""
    known = published()["kinds"]
    named = f"{manifest.get('apiVersion')} {manifest.get('kind')}" if isinstance(manifest, dict) else "no mapping"
    if named not in known:
        return [f"{named} is not known here: choose one of {', '.join(known)}"]
    if found := [*misfit(manifest, known[named], manifest["kind"])]:
        return found
    if manifest["kind"] not in CLUSTERS:
        return []
    return [*refused(manifest), *open_or_foreign(manifest), *served(manifest)]


def misfit(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Fields that there are not, values of another type, and what has to be there."""
    if isinstance(shape, int):
        shape = published()["shapes"][shape]
    if shape == "any":
        return
    kind = shape if isinstance(shape, str) else "any" if "one of" in shape else "list" if "each" in shape else "mapping"
    if not fits(value, kind):
        yield f"{where}: {value!r} is no {kind}{remedy(value, kind)}"
    elif kind == "any" and value not in shape["one of"]:
        yield f"{where}: {value!r} is none of {', '.join(map(repr, shape['one of']))}"
    elif kind == "list":
        for at, one in enumerate(value):
            yield from misfit(one, shape["each"], f"{where}[{at}]")
    elif kind == "mapping":
        yield from misfit_fields(value, shape, where)


def fits(value: Any, kind: str) -> bool:
    """Whether it is of that type, as YAML has read it."""
    if kind == "quantity" and not QUANTITY.fullmatch(str(value)):
        return False
    return kind == "any" or (isinstance(value, TYPES[kind]) and isinstance(value, bool) <= (kind == "boolean"))


def remedy(value: Any, kind: str) -> str:
    """What to write instead, where that is known."""
    if kind in ("string", "quantity") and isinstance(value, bool | int | float):  # YAML took a text for something else
        return f": write {json.dumps(str(value).lower() if isinstance(value, bool) else str(value))}"
    return ", such as 500m, 2 or 8Gi" if kind == "quantity" else ""


def misfit_fields(value: Facts, shape: Facts, where: str) -> Iterator[str]:
    """The same of what a mapping holds."""
    for name in shape.get("required", []):
        if value.get(name) is None:
            yield f"{where}.{name} is missing"
    for name, one in value.items():
        if one is None:  # as if it were left out
            continue
        if "values" in shape or name in shape["fields"]:
            yield from misfit(one, shape["values"] if "values" in shape else shape["fields"][name], f"{where}.{name}")
        else:
            near = difflib.get_close_matches(str(name), shape["fields"], 1)
            yield f"{where}.{name}: there is no such field{f', perhaps {near[0]}' if near else ''}"


def cluster(manifest: Facts) -> tuple[str, Facts | None]:
    """Where a manifest says what its cluster is, and that."""
    held: Any = manifest
    for name in (path := CLUSTERS[manifest["kind"]]).split("."):
        held = held.get(name) or {}
    return f"{manifest['kind']}.{path}", held or None


def groups(where: str, asked: Facts) -> Iterator[tuple[str, Facts]]:
    """Its head and its groups of workers."""
    yield f"{where}.headGroupSpec", asked["headGroupSpec"]
    for at, one in enumerate(asked.get("workerGroupSpecs") or []):
        yield f"{where}.workerGroupSpecs[{at}]", one


def containers(group: Facts) -> list[Facts]:
    """Of each of its pods; the first one is Ray's."""
    pod: Facts = (group.get("template") or {}).get("spec") or {}
    return pod.get("containers") or []


def refused(manifest: Facts) -> Iterator[str]:
    """What KubeRay's operator would say once it is there, where no schema can."""
    kind, name = manifest["kind"], manifest["metadata"].get("name") or ""
    if not NAME.fullmatch(name) or len(name) > LONGEST[kind]:
        yield f"{kind}.metadata.name: {name!r} is no name: small letters, digits and -, {LONGEST[kind]} at most"
    spec, (where, asked) = manifest["spec"], cluster(manifest)
    if asked is None:
        if not spec.get("clusterSelector"):
            yield f"{where} is missing: say what the cluster is, or name one by clusterSelector"
        return
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield f"{kind}.spec.ttlSecondsAfterFinished: there is nothing to wait for without shutdownAfterJobFinishes"
    for place, group in groups(where, asked):
        if not containers(group):
            yield f"{place}.template.spec.containers: give one at least"
        if group.get("maxReplicas") is not None and (group.get("minReplicas") or 0) > group["maxReplicas"]:
            yield f"{place}: minReplicas {group['minReplicas']} is above maxReplicas {group['maxReplicas']}"


def open_or_foreign(manifest: Facts) -> Iterator[str]:
    """A cluster without a token, of another Ray than ours, or with work on its head."""
    where, asked = cluster(manifest)
    if asked is None:
        return
    if (asked.get("authOptions") or {}).get("mode") != "token":
        yield f"{where}.authOptions: whoever reaches a port may run code: set mode: token"
    if asked.get("rayVersion") != ray.__version__:
        yield f"{where}.rayVersion: {asked.get('rayVersion')} is not {ray.__version__}, which is installed here"
    if (asked["headGroupSpec"].get("rayStartParams") or {}).get("num-cpus") != "0":
        yield f'{where}.headGroupSpec.rayStartParams: give it num-cpus: "0", so that no work runs there'
    started = [str(one.get("lifecycle")) for one in containers(asked["headGroupSpec"])[:1]]
    grows = asked.get("enableInTreeAutoscaling") and manifest["kind"] != "RayService"
    if grows and any("jobs.cluster.limits" not in one for one in started):
        yield (
            f"{where}.headGroupSpec: jobs cannot tell how far it may grow: "
            "have postStart run python -m jobs.cluster.limits"
        )
    for place, group in groups(where, asked):
        for container in containers(group)[:1]:
            image = container.get("image") or "none"
            if ray.__version__ not in image.rpartition(":")[2]:
                yield f"{place}: the tag of image {image} does not say that it is of Ray {ray.__version__}"


def served(manifest: Facts) -> Iterator[str]:
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
        yield from (f"{where}{one}: Ray Serve knows no such field" for one in lost(config, kept))
        if kept.get("proxy_location") == "Disabled":
            yield from unready(manifest)


def unready(manifest: Facts) -> Iterator[str]:
    """Workers that KubeRay would wait for without end: it asks for Ray's proxy unless it is told what else to ask."""
    where, asked = cluster(manifest)
    if asked is None:
        return
    for place, group in groups(where, asked):
        for container in containers(group)[:1]:
            if not container.get("readinessProbe") and group is not asked["headGroupSpec"]:
                yield f"{place}: without Ray's proxy no pod is ready unless a readinessProbe says when: ask for /ready"


def lost(given: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Fields that were given and are not kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, one in given.items():
            yield from lost(one, kept[name], f"{where}.{name}") if name in kept else [f"{where}.{name}"]
    elif isinstance(given, list) and isinstance(kept, list):
        for at, (one, other) in enumerate(zip(given, kept, strict=False)):
            yield from lost(one, other, f"{where}[{at}]")
