"""Set how far the running cluster may grow.

    python -m jobs.cluster.limits ~/ray_bootstrap_config.yaml

Ray reserves a key for these limits that its own autoscaler never sets, so jobs could not tell how many nodes a cluster
without nodes may get. Run this on the head after `ray start`, with the file that the autoscaler uses: the one of
`ray up`, or a KubeRay manifest.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from equipoise.command_line import CommandParser, command
from equipoise.errors import EquipoiseError
from jobs.cluster.ray_internals import ClusterConfig, NodeGroupConfig, put_cluster_config
from jobs.cluster.validate_kuberay import find_cluster_spec, group_containers
from jobs.cluster.yaml_files import load_yaml_documents

COUNTED_RESOURCES = ("CPU", "GPU")
# what reading limits from a file of another kind may raise
CLUSTER_FILE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
KUBERNETES_RESOURCE_NAMES = {"CPU": "cpu", "GPU": "nvidia.com/gpu"}


@command()
def main() -> int:
    """Set the limits of the running cluster; return exit status 0 when they are set, 2 when the file has none."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("file", type=Path)
    put_cluster_config(read_cluster_limits(parser.parse_args().file))
    return 0


def read_cluster_limits(path: Path) -> ClusterConfig:
    """Read the limits from a cluster file or a KubeRay manifest; refuse any other file."""
    try:
        return build_cluster_limits(*load_yaml_documents(path))
    except CLUSTER_FILE_ERRORS as error:
        reason = " ".join(str(error).split())
        raise EquipoiseError(
            "cluster-file", f"{path} is neither a cluster file nor a KubeRay manifest of a cluster: {reason}"
        ) from None


def build_cluster_limits(config: dict[str, Any]) -> ClusterConfig:
    """Build the limits of a cluster file or KubeRay manifest in the form in which Ray stores them."""
    config = config if "available_node_types" in config else convert_kuberay_manifest(config)
    node_types, head, max_workers = config["available_node_types"], config["head_node_type"], int(config["max_workers"])
    limits = ClusterConfig()
    for name, node_type in node_types.items():
        count = 1 if name == head else min(max_workers, int(node_type.get("max_workers", max_workers)))
        group = NodeGroupConfig(name=name, resources=cpus_and_gpus(node_type), max_count=count)
        limits.node_group_configs.append(group)
    groups = [group for group in limits.node_group_configs if group.name != head]
    for name in COUNTED_RESOURCES:  # the bound on all nodes together may be lower than the sum over their types
        amounts_and_counts = ((group.resources[name], group.max_count) for group in groups)
        limits.max_resources[name] = max_total_resource(amounts_and_counts, max_workers)
        limits.max_resources[name] += cpus_and_gpus(node_types[head])[name]
    return limits


def convert_kuberay_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Convert the nodes of a KubeRay manifest to a cluster file; a pod has its limits, or else its requests."""
    _, cluster_spec = find_cluster_spec(manifest)
    if cluster_spec is None:
        raise KeyError("the manifest defines no cluster")
    node_types: dict[str, dict[str, Any]] = {
        "head": {"resources": {"CPU": cluster_spec["headGroupSpec"]["rayStartParams"]["num-cpus"]}}
    }
    for group in cluster_spec.get("workerGroupSpecs") or []:
        pod_resources = group_containers(group)[0].get("resources") or {}
        quantities = (pod_resources.get("requests") or {}) | (pod_resources.get("limits") or {})
        resources = {name: round_up_quantity(quantities.get(key, 0)) for name, key in KUBERNETES_RESOURCE_NAMES.items()}
        node_types[group["groupName"]] = {"resources": resources, "max_workers": group["maxReplicas"]}
    max_workers = sum(node_type.get("max_workers", 0) for node_type in node_types.values())
    return {"available_node_types": node_types, "head_node_type": "head", "max_workers": max_workers}


def round_up_quantity(quantity: Any) -> int:
    """Return a Kubernetes quantity of CPUs or GPUs, such as `4` or `3500m`, rounded up as Ray does."""
    text = str(quantity)
    return math.ceil(float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1))


def cpus_and_gpus(node_type: dict[str, Any]) -> dict[str, int]:
    """Return the CPUs and GPUs of a node type, by which workers are placed."""
    return {name: int(node_type["resources"].get(name, 0)) for name in COUNTED_RESOURCES}


def max_total_resource(amounts_and_counts: Iterable[tuple[int, int]], max_nodes: int) -> int:
    """Return the most of a resource that `max_nodes` nodes hold, given (amount per node, nodes) of each type."""
    return sum(sorted((amount for amount, count in amounts_and_counts for _ in range(count)), reverse=True)[:max_nodes])


if __name__ == "__main__":
    sys.exit(main())
