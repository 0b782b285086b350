"""Check a cluster file before `ray up` spends money on it.

Ray checks only the outer structure: `provider` and `node_config` are read by the cloud alone, so they are checked here
against the clouds' own API descriptions. A file must also not open what Equipoise keeps closed: Ray without a token, or
a dashboard on a public address. KubeRay manifests can be checked too.

Exit status: 0 no problem was found; 2 a file has a problem, or the options are wrong.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

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

from equipoise.command_line import REFUSED, CommandParser, command, print_error
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.user_paths import PathText, require_local_paths
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
"""keys under `provider` that Ray 2.58 reads, by provider type"""
MAPPING_KEYS = ("provider", "available_node_types", "docker", "auth", "file_mounts")
LOCAL_PROVIDER = "jobs.cluster.local_node_provider.LocalNodeProvider"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


@command()
def main() -> int:
    """Print every problem of the given files and return the exit status."""
    problems = 0
    for path in build_parser().parse_args().files:
        require_local_paths({"FILE": path})
        for text in validate_cluster_file(Path(path)):
            print_error(f"{path}: {text} [cluster-file]", REFUSED)
            problems += 1
    if not problems:
        print("no problems found")
    return REFUSED if problems else 0


def build_parser() -> CommandParser:
    """Build the parser of the command's options."""
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "files", nargs="+", type=PathText, metavar="FILE", help="cluster files of Ray, or KubeRay manifests"
    )
    return parser


def validate_cluster_file(path: Path) -> list[str]:
    """Return the problems of a cluster file or a KubeRay manifest, one sentence each."""
    try:
        documents = load_yaml_documents(path)
    except EquipoiseError as error:
        return [str(error)]
    if is_kubernetes_manifest(documents):
        return validate_manifests(documents)
    if len(documents) > 1:
        return [f"the file holds {len(documents)} YAML documents: `ray up` takes one"]
    config: Any = documents[0] if documents else None
    if problems := [*check_mappings(config)] or find_ray_errors(config) or [*check_required_keys(config)]:
        return problems
    provider = config["provider"]["type"]
    if provider not in PROVIDER_KEYS:
        return [f"provider.type: {provider} is not supported here: choose {' or '.join(PROVIDER_KEYS)}"]
    known_keys = ", ".join(sorted(PROVIDER_KEYS[provider]))
    unknown_keys = sorted(map(str, set(config["provider"]) - PROVIDER_KEYS[provider]))
    problems = [f"provider.{key}: Ray reads no such key; it reads {known_keys}" for key in unknown_keys]
    for name, node_type in config["available_node_types"].items():
        node_problems = NODE_CHECKS_BY_PROVIDER[provider](node_type["node_config"])
        problems += [f"available_node_types.{name}.node_config{problem}" for problem in node_problems]
    if provider == "external":  # jobs.cluster.local starts it, and runs none of the file's commands
        return [*problems, *check_provider_module(config), *check_images(config)]
    return [*problems, *check_start_commands(config), *check_limits_command(config), *check_images(config)]


def check_mappings(config: Any) -> Iterator[str]:
    """Report values that are not mappings where Ray, which would crash on them, expects mappings."""
    if not isinstance(config, dict):
        yield f"the file holds {describe_yaml_value(config)}: a cluster file is a mapping that begins with cluster_name"
        return
    values = {name: config.get(name) for name in MAPPING_KEYS if name in config}
    if isinstance(node_types := config.get("available_node_types"), dict):
        values |= {f"available_node_types.{name}": node_type for name, node_type in node_types.items()}
    for name, value in values.items():
        if not isinstance(value, dict):
            yield f"{name} must be a mapping, but is {describe_yaml_value(value)}"


def check_required_keys(config: JsonObject) -> Iterator[str]:
    """Report missing keys that Ray fills in for some providers only."""
    yield from (f"{name} is missing" for name in ("available_node_types", "head_node_type") if name not in config)


def describe_yaml_value(value: Any) -> str:
    """Describe a YAML value in a few words for an error message."""
    return "nothing" if value is None else "a list" if isinstance(value, list) else repr(value)[:40]


def find_ray_errors(config: Any) -> list[str]:
    """Return the first line of the error that Ray's own validation raises, or an empty list."""
    from jobs.cluster.ray_internals import prepare_config, validate_config  # loaded only where a file is checked

    logging.getLogger("ray.autoscaler._private.util").setLevel(logging.ERROR)  # it warns of keys that it added itself
    try:
        validate_config(prepare_config(copy.deepcopy(config)))
        return []
    except Exception as error:  # Ray raises exceptions of many types here
        has_key = isinstance(error, KeyError) and error.args
        return [f"Ray rejects it: {f'{error.args[0]} is missing' if has_key else first_error_line(error)}"]


def check_ec2(node_config: JsonObject) -> Iterator[str]:
    """Report what EC2 would reject in an instance's configuration, by the API description in boto3."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    ec2 = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    # SubnetIds is a key of Ray's, which chooses one of them
    parameters = {name: value for name, value in node_config.items() if name != "SubnetIds"}
    parameters |= {"MinCount": 1, "MaxCount": 1}
    report = ParamValidator().validate(parameters, ec2.operation_model("RunInstances").input_shape).generate_report()
    yield from (f": {' '.join(line.split())}" for line in report.splitlines() if line.strip())
    instance_types = ec2.shape_for("InstanceType").enum
    if node_config.get("InstanceType") not in instance_types:
        yield f".InstanceType: {node_config.get('InstanceType')!r} is not an instance type that boto3 knows"


def check_compute_engine(node_config: JsonObject) -> Iterator[str]:
    """Report fields that Compute Engine does not have, by Google's API description."""
    path = files("googleapiclient.discovery_cache") / "documents" / "compute.v1.json"
    schemas: JsonObject = json.loads(path.read_text(encoding="utf-8"))["schemas"]
    yield from find_unknown_fields(node_config, schemas["Instance"], schemas, "")


def find_unknown_fields(value: Any, schema: JsonObject, schemas: JsonObject, path: str) -> Iterator[str]:
    """Report the fields of a value, at any depth, that its schema does not have."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_unknown_fields(item, schema.get("items", {}), schemas, f"{path}[{index}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}: Compute Engine has no such field"
            else:
                yield from find_unknown_fields(item, schema["properties"][name], schemas, f"{path}.{name}")


def check_no_keys(node_config: JsonObject) -> Iterator[str]:
    """Report every key, because nodes on this machine read none."""
    yield from (f".{name}: nodes on this machine read no such key" for name in node_config)


NODE_CHECKS_BY_PROVIDER = {"aws": check_ec2, "gcp": check_compute_engine, "external": check_no_keys}


def check_start_commands(config: JsonObject) -> Iterator[str]:
    """Report commands that start Ray without a token, or with a dashboard that other machines can reach."""
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [command for command in config.get(part, []) if "ray start" in command]
        if not starts:
            yield f"{part}: no command starts Ray: Ray's default command, which requires no token, would be used"
        for start in starts:
            if "RAY_AUTH_MODE=token" not in start:
                yield f"{part}: anyone who reaches a port can run code: start Ray with RAY_AUTH_MODE=token"
            host = re.search(r"--dashboard-host[= ](\S+)", start)
            if host and host[1] not in LOOPBACK_HOSTS:
                yield f"{part}: the dashboard listens on {host[1]}: keep to 127.0.0.1, and reach it with ray dashboard"


def check_limits_command(config: JsonObject) -> Iterator[str]:
    """Report a head that does not set the cluster's limits: jobs that need more nodes would be refused."""
    commands = " ".join(config.get("head_start_ray_commands", []))
    if "ray start" in commands and "jobs.cluster.limits" not in commands:
        yield (
            "head_start_ray_commands: jobs cannot tell how far the cluster may grow: "
            "add a command that runs python -m jobs.cluster.limits"
        )


def check_provider_module(config: JsonObject) -> Iterator[str]:
    """Report a provider module of others, whose code would run on this machine."""
    if (module := config["provider"].get("module")) != LOCAL_PROVIDER:
        yield f"provider.module: {module} would run on this machine, where only {LOCAL_PROVIDER} is allowed"


def check_images(config: JsonObject) -> Iterator[str]:
    """Report images that do not pin the installed version of Ray, and a head on which work could run."""
    docker = config.get("docker", {})
    for name in ("image", "head_image", "worker_image"):
        if (image := docker.get(name)) and f":{ray.__version__}-py" not in image:
            yield f"docker.{name}: {image} does not have Ray {ray.__version__}, the version installed here"
    if config["available_node_types"][config["head_node_type"]]["resources"].get("CPU") != 0:
        yield f"available_node_types.{config['head_node_type']}.resources: set CPU: 0, so that no work runs there"


if __name__ == "__main__":
    sys.exit(main())
