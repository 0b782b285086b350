"""Check a cluster file before `ray up` spends money on it: python -m jobs.cluster.validate cluster.yaml

Ray checks the frame and lets pass what stands under `provider` and `node_config`, which only the cloud reads; that is
held against the clouds' own descriptions here. And it must not open what Equipoise keeps shut. Manifests for KubeRay
are known too.
"""

import argparse
import copy
import json
import logging
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import ray

from equipoise.type_aliases import JsonObject
from jobs.cluster.validate_kuberay import is_kubernetes_manifest, validate_manifests
from jobs.cluster.yaml_files import load_yaml_documents

COMMON_PROVIDER_KEYS = {
    "type",
    "region",
    "availability_zone",
    "cache_stopped_nodes",
    "use_internal_ips",
    "disable_node_updaters",
}
PROVIDER_KEYS = {
    "aws": COMMON_PROVIDER_KEYS | {"security_group", "key_pair", "aws_credentials", "cloudwatch"},
    "gcp": COMMON_PROVIDER_KEYS | {"project_id", "gcp_credentials"},
    "external": {"type", "module", "launch_multiple", "head_node_id"},  # nodes on this machine, by jobs.cluster.local
}
"""what Ray 2.58 reads of each"""
MAPPING_KEYS = ("provider", "available_node_types", "docker", "auth", "file_mounts")
LOCAL_PROVIDER = "jobs.cluster.local_node_provider.Local"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


def main() -> int:
    """Exit status: 0 all can be launched, 2 something cannot."""
    asked = argparse.ArgumentParser(prog="python -m jobs.cluster.validate", description=__doc__)
    asked.add_argument("files", nargs="+", type=Path)
    found = [f"{path}: {one}" for path in asked.parse_args().files for one in validate_cluster_file(path)]
    for one in found:
        print(f"error: {one}", file=sys.stderr)
    if not found:
        print("nothing wrong was found")
    return 2 if found else 0


def validate_cluster_file(path: Path) -> list[str]:
    """All that is, in sentences."""
    try:
        documents = load_yaml_documents(path)
    except ValueError as error:
        return [str(error)]
    if is_kubernetes_manifest(documents):
        return validate_manifests(documents)
    if len(documents) > 1:
        return [f"holds {len(documents)} documents: `ray up` takes one"]
    config: Any = documents[0] if documents else None
    if said := [*check_mappings(config)] or find_ray_errors(config) or [*check_required_keys(config)]:
        return said
    kind = config["provider"]["type"]
    if kind not in PROVIDER_KEYS:
        return [f"provider.type: {kind} is not known here: choose {' or '.join(PROVIDER_KEYS)}"]
    odd = sorted(map(str, set(config["provider"]) - PROVIDER_KEYS[kind]))
    found = [
        f"provider.{name}: Ray reads no such key; it reads {', '.join(sorted(PROVIDER_KEYS[kind]))}" for name in odd
    ]
    for name, node in config["available_node_types"].items():
        found += [
            f"available_node_types.{name}.node_config{one}"
            for one in NODE_CHECKS_BY_PROVIDER[kind](node["node_config"])
        ]
    if kind == "external":  # jobs.cluster.local starts it, by no command of the file's
        return [*found, *check_provider_module(config), *check_images(config)]
    return [*found, *check_start_commands(config), *check_limits_command(config), *check_images(config)]


def check_mappings(config: Any) -> Iterator[str]:
    """What is no mapping where there has to be one: Ray would fall over it."""
    if not isinstance(config, dict):
        yield f"holds {describe_yaml_value(config)}: a cluster file is a mapping that begins with cluster_name"
        return
    places = {name: config.get(name) for name in MAPPING_KEYS if name in config}
    if isinstance(kinds := config.get("available_node_types"), dict):
        places |= {f"available_node_types.{name}": one for name, one in kinds.items()}
    for name, one in places.items():
        if not isinstance(one, dict):
            yield f"{name} has to be a mapping, and is {describe_yaml_value(one)}"


def check_required_keys(config: JsonObject) -> Iterator[str]:
    """What has to be there, and Ray fills in for some providers only."""
    yield from (f"{name} is missing" for name in ("available_node_types", "head_node_type") if name not in config)


def describe_yaml_value(value: Any) -> str:
    """What YAML holds, in words."""
    return "nothing" if value is None else "a list" if isinstance(value, list) else repr(value)[:40]


def find_ray_errors(config: Any) -> list[str]:
    """Ray's own word, the first line of it."""
    from jobs.cluster.ray_internals import prepare_config, validate_config  # loaded only where a file is checked

    logging.getLogger("ray.autoscaler._private.util").setLevel(logging.ERROR)  # it drops lines that it added itself
    try:
        validate_config(prepare_config(copy.deepcopy(config)))
        return []
    except Exception as error:  # it raises what it likes
        said = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error).strip()
        return [f"Ray refuses it: {(said or type(error).__name__).splitlines()[0]}"]


def check_ec2(node_config: JsonObject) -> Iterator[str]:
    """What EC2 would not take of an instance, by its own description."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    ec2 = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    asked = {
        name: value for name, value in node_config.items() if name != "SubnetIds"
    }  # Ray's, which chooses one of them
    asked |= {"MinCount": 1, "MaxCount": 1}
    report = ParamValidator().validate(asked, ec2.operation_model("RunInstances").input_shape).generate_report()
    yield from (f": {' '.join(line.split())}" for line in report.splitlines() if line.strip())
    kinds = ec2.shape_for("InstanceType").enum
    if node_config.get("InstanceType") not in kinds:
        yield f".InstanceType: {node_config.get('InstanceType')!r} is no instance type that boto3 knows"


def check_compute_engine(node_config: JsonObject) -> Iterator[str]:
    """What Compute Engine has no field for, by its own description."""
    place = files("googleapiclient.discovery_cache") / "documents" / "compute.v1.json"
    schemas: JsonObject = json.loads(place.read_text(encoding="utf-8"))["schemas"]
    yield from find_unknown_fields(node_config, schemas["Instance"], schemas, "")


def find_unknown_fields(value: Any, schema: JsonObject, schemas: JsonObject, path: str) -> Iterator[str]:
    """Fields without a place in a schema."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from find_unknown_fields(one, schema.get("items", {}), schemas, f"{path}[{at}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, one in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}: Compute Engine has no such field"
            else:
                yield from find_unknown_fields(one, schema["properties"][name], schemas, f"{path}.{name}")


def check_no_keys(node_config: JsonObject) -> Iterator[str]:
    """What a node on this machine would not take: anything."""
    yield from (f".{name}: nodes on this machine read no such key" for name in node_config)


NODE_CHECKS_BY_PROVIDER = {"aws": check_ec2, "gcp": check_compute_engine, "external": check_no_keys}


def check_start_commands(config: JsonObject) -> Iterator[str]:
    """Commands that let in who knows no token, or who comes from elsewhere."""
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [command for command in config.get(part, []) if "ray start" in command]
        if not starts:
            yield f"{part}: no command starts Ray: Ray's own, which asks for no token, would be used"
        for command in starts:
            if "RAY_AUTH_MODE=token" not in command:
                yield f"{part}: whoever reaches a port may run code: start Ray with RAY_AUTH_MODE=token"
            host = re.search(r"--dashboard-host[= ](\S+)", command)
            if host and host[1] not in LOOPBACK_HOSTS:
                yield f"{part}: the dashboard listens on {host[1]}: keep to 127.0.0.1, and reach it by ray dashboard"


def check_limits_command(config: JsonObject) -> Iterator[str]:
    """A head that keeps from jobs how far its cluster may grow: they would refuse whatever needs more nodes."""
    commands = " ".join(config.get("head_start_ray_commands", []))
    if "ray start" in commands and "jobs.cluster.limits" not in commands:
        yield (
            "head_start_ray_commands: jobs cannot tell how far the cluster may grow: "
            "run python -m jobs.cluster.limits there"
        )


def check_provider_module(config: JsonObject) -> Iterator[str]:
    """Code that a file would have run here."""
    if (module := config["provider"].get("module")) != LOCAL_PROVIDER:
        yield f"provider.module: {module} would be run on this machine, of which only {LOCAL_PROVIDER} is known here"


def check_images(config: JsonObject) -> Iterator[str]:
    """Images that are another Ray than ours, or another tomorrow."""
    docker = config.get("docker", {})
    for name in ("image", "head_image", "worker_image"):
        if (image := docker.get(name)) and f":{ray.__version__}-py" not in image:
            yield f"docker.{name}: {image} is not of Ray {ray.__version__}, which this project is installed with"
    if config["available_node_types"][config["head_node_type"]]["resources"].get("CPU") != 0:
        yield f"available_node_types.{config['head_node_type']}.resources: give it CPU: 0, so that no work runs there"


if __name__ == "__main__":
    sys.exit(main())
