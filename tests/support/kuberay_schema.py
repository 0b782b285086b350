"""Extract names and types of manifest fields from the CRDs of KubeRay and Kubernetes, for kuberay_schema.json:

python -m tests.support.kuberay_schema --kuberay 1.7.0 --kubernetes 1.37 ray.io_rayclusters.yaml ray.io_rayjobs.yaml
    ray.io_rayservices.yaml _definitions.json > jobs/cluster/kuberay_schema.json

The first three lie in KubeRay's repository under ray-operator/config/crd/bases, at the version's tag; the last one is
Kubernetes' own swagger file as JSON schema, as the package kubernetes-validate brings it. Where one shape is found
again and again, a container's in each group of pods, it is written once and called by its number.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

CORE = ("io.k8s.api.core.v1.PersistentVolumeClaim", "io.k8s.api.networking.v1.NetworkPolicy")
"""kinds of Kubernetes' own that our manifests hold"""
Schema = dict[str, Any]


class Shapes:
    """A number for each shape, the same for the same."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def number(self, shape: Any) -> int:
        return self.known.setdefault(json.dumps(shape, separators=(",", ":")), len(self.known))

    def of(self, schema: Schema, among: Schema) -> str | int:
        """A word for what has no parts, a number for what has."""
        if "$ref" in schema:
            schema = among[schema["$ref"].rpartition("/")[2]]
        kinds = schema.get("type", "any")
        kind = kinds if isinstance(kinds, str) else kinds[0]  # the other one is null
        if parts := schema.get("properties"):
            fields = {name: self.of(one, among) for name, one in sorted(parts.items()) if name != "status"}
            needed = [name for name in schema.get("required", []) if "default" not in parts[name]]
            return self.number({"fields": fields} | ({"required": needed} if needed else {}))
        if kind == "array":
            return self.number({"each": self.of(schema["items"], among)})
        if kind == "object":
            values = schema.get("additionalProperties")
            return self.number({"values": self.of(values, among) if isinstance(values, dict) else "any"})
        if "enum" in schema:
            return self.number({"one of": schema["enum"]})
        return word(schema, kind)


def word(schema: Schema, kind: str) -> str:
    """What a value without parts is."""
    if "x-kubernetes-int-or-string" in schema or "oneOf" in schema:
        number = "pattern" in schema or {"type": ["number", "null"]} in schema.get("oneOf", [])
        return "quantity" if number else "integer or string"
    return kind


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.support.kuberay_schema", description=__doc__)
    asked.add_argument("--kuberay", required=True)
    asked.add_argument("--kubernetes", required=True)
    asked.add_argument("files", nargs=4, type=Path)
    given = asked.parse_args()
    *crds, core = given.files
    shapes, kinds, defined = Shapes(), {}, json.loads(core.read_text())["$defs"]
    meta = shapes.of(defined["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"], defined)
    for path in crds:
        spec = yaml.safe_load(path.read_text())["spec"]
        [v1] = [one["schema"]["openAPIV3Schema"] for one in spec["versions"] if one["name"] == "v1"]
        number = shapes.of(v1 | {"required": ["metadata", "spec"]}, {})
        kinds[f"ray.io/v1 {spec['names']['kind']}"] = number
    for name in CORE:
        [kind] = defined[name]["x-kubernetes-group-version-kind"]
        group = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        kinds[f"{group} {kind['kind']}"] = shapes.of(defined[name], defined)
    written = [json.loads(one) for one in shapes.known]
    for number in kinds.values():
        written[number]["fields"]["metadata"] = meta  # a CRD leaves it to Kubernetes
    versions = {"kuberay": given.kuberay, "kubernetes": given.kubernetes}
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in written)
    print(f'{{"versions": {json.dumps(versions)},\n"kinds": {json.dumps(kinds)},\n"shapes": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
