"""Reduce the schemas that KubeRay and Kubernetes publish to names and types of fields, for kuberay_schema.json:

python -m tests.support.kuberay_schema --kuberay 1.7.0 --kubernetes 1.37 ray.io_rayclusters.yaml ray.io_rayjobs.yaml
    ray.io_rayservices.yaml _definitions.json > jobs/cluster/kuberay_schema.json

The first three lie in KubeRay's repository under ray-operator/config/crd/bases, at the version's tag; the last one is
Kubernetes' own swagger file as JSON schema, as in the package kubernetes-validate. A definition that occurs many times,
such as a container's in each group of pods, is written once and referred to by its number.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

CORE_KINDS = ("io.k8s.api.core.v1.PersistentVolumeClaim", "io.k8s.api.networking.v1.NetworkPolicy")
"""Kubernetes' own kinds that our manifests contain"""
QUANTITY = {
    "title": "quantity",
    "anyOf": [
        {"type": "integer"},
        {"type": "string", "pattern": r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$"},
    ],
}
"""amount of a resource, such as 500m or 8Gi"""
Schema = dict[str, Any]


class DefinitionTable:
    """Numbered definitions of a JSON schema; equal ones share a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add_definition(self, definition: Schema) -> Schema:
        """Return a reference to a definition."""
        number = self.numbers.setdefault(json.dumps(definition, separators=(",", ":")), len(self.numbers))
        return {"$ref": f"#/$defs/{number}"}

    def add_schema(self, schema: Schema, definitions: Schema) -> Schema:
        """Return a published schema less texts, defaults and `status`, as a reference if it has parts."""
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
            definition = {"type": "object"} | ({"required": required} if required else {})
            return self.add_definition(definition | {"properties": fields, "additionalProperties": False})
        if kind == "array":
            return self.add_definition({"type": "array", "items": self.add_schema(schema["items"], definitions)})
        if kind == "object":
            values = schema.get("additionalProperties")
            if not isinstance(values, dict):
                return {"type": "object"}
            return self.add_definition({"type": "object", "additionalProperties": self.add_schema(values, definitions)})
        if "enum" in schema:
            return {"enum": schema["enum"]}
        return scalar_schema(schema, kind)


def scalar_schema(schema: Schema, kind: str) -> Schema:
    """Return the schema of a value without parts."""
    if "x-kubernetes-int-or-string" in schema or "oneOf" in schema:
        is_quantity = "pattern" in schema or {"type": ["number", "null"]} in schema.get("oneOf", [])
        return {"$ref": "#/$defs/quantity"} if is_quantity else {"type": ["integer", "string"]}
    return {} if kind == "any" else {"type": kind}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kuberay_schema", description=__doc__)
    parser.add_argument("--kuberay", required=True)
    parser.add_argument("--kubernetes", required=True)
    parser.add_argument("files", nargs=4, type=Path)
    arguments = parser.parse_args()
    *crds, core = arguments.files
    table, kinds, published = DefinitionTable(), {}, json.loads(core.read_text())["$defs"]
    metadata = table.add_schema(published["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"], published)
    for path in crds:
        spec = yaml.safe_load(path.read_text())["spec"]
        [v1] = [version["schema"]["openAPIV3Schema"] for version in spec["versions"] if version["name"] == "v1"]
        reference = table.add_schema(v1 | {"required": ["metadata", "spec"]}, {})
        kinds[f"ray.io/v1 {spec['names']['kind']}"] = reference
    for name in CORE_KINDS:
        [kind] = published[name]["x-kubernetes-group-version-kind"]
        group = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        kinds[f"{group} {kind['kind']}"] = table.add_schema(published[name], published)
    definitions = {str(number): json.loads(definition) for number, definition in enumerate(table.numbers)}
    for reference in kinds.values():  # CRDs leave metadata to Kubernetes
        definitions[reference["$ref"].rpartition("/")[2]]["properties"]["metadata"] = metadata
    versions = {"kuberay": arguments.kuberay, "kubernetes": arguments.kubernetes}
    parts = {"quantity": QUANTITY} | definitions
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(part, separators=(',', ':'))}" for name, part in parts.items())
    print(f'{{"versions": {json.dumps(versions)},\n"kinds": {json.dumps(kinds)},\n"$defs": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
