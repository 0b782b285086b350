"""How far a cluster may grow, told to it: python -m jobs.cluster.limits ~/ray_bootstrap_config.yaml

Ray keeps a place for this which its own autoscaler never fills, so that no job could tell what a cluster without
nodes may come to hold. To be run on the head, after `ray start`, on the file that the autoscaler goes by: that of
`ray up`, or a manifest for KubeRay.
"""

import argparse
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs.cluster.ray_internals import ClusterConfig, NodeGroupConfig, put_cluster_config
from jobs.cluster.validate_kuberay import find_cluster_spec, group_containers
from jobs.cluster.yaml_files import load_yaml_documents

COUNTED_RESOURCES = ("CPU", "GPU")
CLUSTER_FILE_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)  # what other files give rise to
KUBERNETES_RESOURCE_NAMES = {"CPU": "cpu", "GPU": "nvidia.com/gpu"}  # by Kubernetes


def main() -> int:
    """Exit status: 0 told, 2 it could not be."""
    asked = argparse.ArgumentParser(prog="python -m jobs.cluster.limits", description=__doc__)
    asked.add_argument("file", type=Path)
    path = asked.parse_args().file
    try:
        bounds = build_cluster_limits(*load_yaml_documents(path))
    except CLUSTER_FILE_ERRORS as error:
        print(f"error: {path} is no cluster file: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    put_cluster_config(bounds)
    return 0


def build_cluster_limits(config: dict[str, Any]) -> ClusterConfig:
    """In the form in which Ray looks for it."""
    config = config if "available_node_types" in config else convert_kuberay_manifest(config)
    kinds, head, most = config["available_node_types"], config["head_node_type"], int(config["max_workers"])
    bounds = ClusterConfig()
    for name, kind in kinds.items():
        count = 1 if name == head else min(most, int(kind.get("max_workers", most)))
        bounds.node_group_configs.append(NodeGroupConfig(name=name, resources=cpus_and_gpus(kind), max_count=count))
    workers = [one for one in bounds.node_group_configs if one.name != head]
    for name in COUNTED_RESOURCES:  # of all nodes together there may be fewer than of each kind by itself
        bounds.max_resources[name] = max_total_resource(((one.resources[name], one.max_count) for one in workers), most)
        bounds.max_resources[name] += cpus_and_gpus(kinds[head])[name]
    return bounds


def convert_kuberay_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """The nodes of a manifest, as a cluster file has them. A pod has what it is limited to, or what it asks for."""
    _, asked = find_cluster_spec(manifest)
    if asked is None:
        raise KeyError("a cluster")
    kinds: dict[str, dict[str, Any]] = {
        "head": {"resources": {"CPU": asked["headGroupSpec"]["rayStartParams"]["num-cpus"]}}
    }
    for group in asked.get("workerGroupSpecs") or []:
        limited = group_containers(group)[0].get("resources") or {}
        both = (limited.get("requests") or {}) | (limited.get("limits") or {})
        resources = {name: round_up_quantity(both.get(key, 0)) for name, key in KUBERNETES_RESOURCE_NAMES.items()}
        kinds[group["groupName"]] = {"resources": resources, "max_workers": group["maxReplicas"]}
    most = sum(kind.get("max_workers", 0) for kind in kinds.values())
    return {"available_node_types": kinds, "head_node_type": "head", "max_workers": most}


def round_up_quantity(quantity: Any) -> int:
    """Of CPUs or GPUs, from `4` or `3500m`; Ray rounds up too."""
    text = str(quantity)
    return math.ceil(float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1))


def cpus_and_gpus(node_type: dict[str, Any]) -> dict[str, int]:
    """What workers are placed by, of a node."""
    return {name: int(node_type["resources"].get(name, 0)) for name in COUNTED_RESOURCES}


def max_total_resource(amounts_and_counts: Iterable[tuple[int, int]], max_nodes: int) -> int:
    """What the best `most` nodes hold together."""
    return sum(sorted((held for held, count in amounts_and_counts for _ in range(count)), reverse=True)[:max_nodes])


if __name__ == "__main__":
    sys.exit(main())
