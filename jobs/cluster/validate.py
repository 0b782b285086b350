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

from jobs.cluster import validate_kuberay as kuberay
from jobs.cluster import yaml_files as yamls

Facts = dict[str, Any]

COMMON = {"type", "region", "availability_zone", "cache_stopped_nodes", "use_internal_ips", "disable_node_updaters"}
PROVIDERS = {
    "aws": COMMON | {"security_group", "key_pair", "aws_credentials", "cloudwatch"},
    "gcp": COMMON | {"project_id", "gcp_credentials"},
    "external": {"type", "module", "launch_multiple", "head_node_id"},  # nodes on this machine, by jobs.cluster.local
}
"""what Ray 2.58 reads of each"""
MAPPINGS = ("provider", "available_node_types", "docker", "auth", "file_mounts")
LOCAL = "jobs.cluster.local_node_provider.Local"
LOOPBACK = ("127.0.0.1", "localhost")


def main() -> int:
    """Exit status: 0 all can be launched, 2 something cannot."""
    asked = argparse.ArgumentParser(prog="python -m jobs.cluster.validate", description=__doc__)
    asked.add_argument("files", nargs="+", type=Path)
    found = [f"{path}: {one}" for path in asked.parse_args().files for one in wrong(path)]
    for one in found:
        print(f"error: {one}", file=sys.stderr)
    if not found:
        print("nothing wrong was found")
    return 2 if found else 0


def wrong(path: Path) -> list[str]:
    """All that is, in sentences."""
    try:
        documents = yamls.documents(path)
    except ValueError as error:
        return [str(error)]
    if kuberay.manifests(documents):
        return kuberay.wrong(documents)
    if len(documents) > 1:
        return [f"holds {len(documents)} documents: `ray up` takes one"]
    config: Any = documents[0] if documents else None
    if said := [*misshapen(config)] or refused_by_ray(config) or [*lacking(config)]:
        return said
    kind = config["provider"]["type"]
    if kind not in PROVIDERS:
        return [f"provider.type: {kind} is not known here: choose {' or '.join(PROVIDERS)}"]
    odd = sorted(map(str, set(config["provider"]) - PROVIDERS[kind]))
    found = [f"provider.{name}: Ray reads no such key; it reads {', '.join(sorted(PROVIDERS[kind]))}" for name in odd]
    for name, node in config["available_node_types"].items():
        found += [f"available_node_types.{name}.node_config{one}" for one in CLOUDS[kind](node["node_config"])]
    if kind == "external":  # jobs.cluster.local starts it, by no command of the file's
        return [*found, *elsewhere(config), *loose(config)]
    return [*found, *opened(config), *untold(config), *loose(config)]


def misshapen(config: Any) -> Iterator[str]:
    """What is no mapping where there has to be one: Ray would fall over it."""
    if not isinstance(config, dict):
        yield f"holds {of_kind(config)}: a cluster file is a mapping that begins with cluster_name"
        return
    places = {name: config.get(name) for name in MAPPINGS if name in config}
    if isinstance(kinds := config.get("available_node_types"), dict):
        places |= {f"available_node_types.{name}": one for name, one in kinds.items()}
    for name, one in places.items():
        if not isinstance(one, dict):
            yield f"{name} has to be a mapping, and is {of_kind(one)}"


def lacking(config: Facts) -> Iterator[str]:
    """What has to be there, and Ray fills in for some providers only."""
    yield from (f"{name} is missing" for name in ("available_node_types", "head_node_type") if name not in config)


def of_kind(value: Any) -> str:
    """What YAML holds, in words."""
    return "nothing" if value is None else "a list" if isinstance(value, list) else repr(value)[:40]


def refused_by_ray(config: Any) -> list[str]:
    """Ray's own word, the first line of it."""
    from jobs.cluster.ray_internals import prepare_config, validate_config  # loaded only where a file is checked

    logging.getLogger("ray.autoscaler._private.util").setLevel(logging.ERROR)  # it drops lines that it added itself
    try:
        validate_config(prepare_config(copy.deepcopy(config)))
        return []
    except Exception as error:  # it raises what it likes
        said = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error).strip()
        return [f"Ray refuses it: {(said or type(error).__name__).splitlines()[0]}"]


def amazon(node: Facts) -> Iterator[str]:
    """What EC2 would not take of an instance, by its own description."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    ec2 = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    asked = {name: value for name, value in node.items() if name != "SubnetIds"}  # Ray's, which chooses one of them
    asked |= {"MinCount": 1, "MaxCount": 1}
    report = ParamValidator().validate(asked, ec2.operation_model("RunInstances").input_shape).generate_report()
    yield from (f": {' '.join(line.split())}" for line in report.splitlines() if line.strip())
    kinds = ec2.shape_for("InstanceType").enum
    if node.get("InstanceType") not in kinds:
        yield f".InstanceType: {node.get('InstanceType')!r} is no instance type that boto3 knows"


def google(node: Facts) -> Iterator[str]:
    """What Compute Engine has no field for, by its own description."""
    place = files("googleapiclient.discovery_cache") / "documents" / "compute.v1.json"
    schemas: Facts = json.loads(place.read_text(encoding="utf-8"))["schemas"]
    yield from unknown(node, schemas["Instance"], schemas, "")


def unknown(value: Any, shape: Facts, schemas: Facts, where: str) -> Iterator[str]:
    """Fields without a place in a schema."""
    shape = schemas[shape["$ref"]] if "$ref" in shape else shape
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from unknown(one, shape.get("items", {}), schemas, f"{where}[{at}]")
    elif isinstance(value, dict) and "properties" in shape:
        for name, one in value.items():
            if name not in shape["properties"]:
                yield f"{where}.{name}: Compute Engine has no such field"
            else:
                yield from unknown(one, shape["properties"][name], schemas, f"{where}.{name}")


def nothing(node: Facts) -> Iterator[str]:
    """What a node on this machine would not take: anything."""
    yield from (f".{name}: nodes on this machine read no such key" for name in node)


CLOUDS = {"aws": amazon, "gcp": google, "external": nothing}


def opened(config: Facts) -> Iterator[str]:
    """Commands that let in who knows no token, or who comes from elsewhere."""
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [command for command in config.get(part, []) if "ray start" in command]
        if not starts:
            yield f"{part}: no command starts Ray: Ray's own, which asks for no token, would be used"
        for command in starts:
            if "RAY_AUTH_MODE=token" not in command:
                yield f"{part}: whoever reaches a port may run code: start Ray with RAY_AUTH_MODE=token"
            host = re.search(r"--dashboard-host[= ](\S+)", command)
            if host and host[1] not in LOOPBACK:
                yield f"{part}: the dashboard listens on {host[1]}: keep to 127.0.0.1, and reach it by ray dashboard"


def untold(config: Facts) -> Iterator[str]:
    """A head that keeps from jobs how far its cluster may grow: they would refuse whatever needs more nodes."""
    commands = " ".join(config.get("head_start_ray_commands", []))
    if "ray start" in commands and "jobs.cluster.limits" not in commands:
        yield (
            "head_start_ray_commands: jobs cannot tell how far the cluster may grow: "
            "run python -m jobs.cluster.limits there"
        )


def elsewhere(config: Facts) -> Iterator[str]:
    """Code that a file would have run here."""
    if (module := config["provider"].get("module")) != LOCAL:
        yield f"provider.module: {module} would be run on this machine, of which only {LOCAL} is known here"


def loose(config: Facts) -> Iterator[str]:
    """Images that are another Ray than ours, or another tomorrow."""
    docker = config.get("docker", {})
    for name in ("image", "head_image", "worker_image"):
        if (image := docker.get(name)) and f":{ray.__version__}-py" not in image:
            yield f"docker.{name}: {image} is not of Ray {ray.__version__}, which this project is installed with"
    if config["available_node_types"][config["head_node_type"]]["resources"].get("CPU") != 0:
        yield f"available_node_types.{config['head_node_type']}.resources: give it CPU: 0, so that no work runs there"


if __name__ == "__main__":
    sys.exit(main())
