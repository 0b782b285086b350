"""Extract names and types of manifest fields from the CRDs of KubeRay and Kubernetes, for kuberay_schema.json:

python -m tests.support.kuberay_schema --kuberay 1.7.0 --kubernetes 1.37 ray.io_rayclusters.yaml ray.io_rayjobs.yaml
    ray.io_rayservices.yaml _definitions.json > jobs/cluster/kuberay_schema.json

The first three lie in KubeRay's repository under ray-operator/config/crd/bases, at the version's tag; the last one is
Kubernetes' own swagger file as JSON schema, as in the package kubernetes-validate. A shape that occurs many times, such
as a container's in each group of pods, is written once and referred to by its number.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

CORE_KINDS = ("io.k8s.api.core.v1.PersistentVolumeClaim", "io.k8s.api.networking.v1.NetworkPolicy")
"""Kubernetes' own kinds that our manifests contain"""
Schema = dict[str, Any]


class ShapeTable:
    """Numbered shapes of fields; equal shapes share a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add_shape(self, shape: Any) -> int:
        return self.numbers.setdefault(json.dumps(shape, separators=(",", ":")), len(self.numbers))

    def add_schema(self, schema: Schema, definitions: Schema) -> str | int:
        """Return the type of a value without parts; add the shape of one with parts and return its number."""
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]]
        kinds = schema.get("type", "any")
        kind = kinds if isinstance(kinds, str) else kinds[0]  # kinds[1] is null
        if properties := schema.get("properties"):
            fields = {
                name: self.add_schema(value, definitions)
                for name, value in sorted(properties.items())
                if name != "status"
            }
            required = [name for name in schema.get("required", []) if "default" not in properties[name]]
            return self.add_shape({"fields": fields} | ({"required": required} if required else {}))
        if kind == "array":
            return self.add_shape({"each": self.add_schema(schema["items"], definitions)})
        if kind == "object":
            values = schema.get("additionalProperties")
            return self.add_shape(
                {"values": self.add_schema(values, definitions) if isinstance(values, dict) else "any"}
            )
        if "enum" in schema:
            return self.add_shape({"one of": schema["enum"]})
        return name_scalar_type(schema, kind)


def name_scalar_type(schema: Schema, kind: str) -> str:
    """Return the name of the type of a value without parts."""
    if "x-kubernetes-int-or-string" in schema or "oneOf" in schema:
        is_quantity = "pattern" in schema or {"type": ["number", "null"]} in schema.get("oneOf", [])
        return "quantity" if is_quantity else "integer or string"
    return kind


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kuberay_schema", description=__doc__)
    parser.add_argument("--kuberay", required=True)
    parser.add_argument("--kubernetes", required=True)
    parser.add_argument("files", nargs=4, type=Path)
    arguments = parser.parse_args()
    *crds, core = arguments.files
    table, kinds, definitions = ShapeTable(), {}, json.loads(core.read_text())["$defs"]
    metadata = table.add_schema(definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"], definitions)
    for path in crds:
        spec = yaml.safe_load(path.read_text())["spec"]
        [v1] = [version["schema"]["openAPIV3Schema"] for version in spec["versions"] if version["name"] == "v1"]
        number = table.add_schema(v1 | {"required": ["metadata", "spec"]}, {})
        kinds[f"ray.io/v1 {spec['names']['kind']}"] = number
    for name in CORE_KINDS:
        [kind] = definitions[name]["x-kubernetes-group-version-kind"]
        group = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        kinds[f"{group} {kind['kind']}"] = table.add_schema(definitions[name], definitions)
    shapes = [json.loads(shape) for shape in table.numbers]
    for number in kinds.values():
        shapes[number]["fields"]["metadata"] = metadata  # CRDs leave it to Kubernetes
    versions = {"kuberay": arguments.kuberay, "kubernetes": arguments.kubernetes}
    lines = ",\n".join(json.dumps(shape, separators=(",", ":")) for shape in shapes)
    print(f'{{"versions": {json.dumps(versions)},\n"kinds": {json.dumps(kinds)},\n"shapes": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
