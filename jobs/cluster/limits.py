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

from jobs.cluster import validate_kuberay as kuberay
from jobs.cluster import yaml_files as yamls
from jobs.cluster.ray_internals import ClusterConfig, NodeGroupConfig, put_cluster_config

COUNTED = ("CPU", "GPU")
FOREIGN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # what other files give rise to
NAMED = {"CPU": "cpu", "GPU": "nvidia.com/gpu"}  # by Kubernetes


def main() -> int:
    """Exit status: 0 told, 2 it could not be."""
    asked = argparse.ArgumentParser(prog="python -m jobs.cluster.limits", description=__doc__)
    asked.add_argument("file", type=Path)
    path = asked.parse_args().file
    try:
        bounds = of(*yamls.documents(path))
    except FOREIGN as error:
        print(f"error: {path} is no cluster file: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    put_cluster_config(bounds)
    return 0


def of(config: dict[str, Any]) -> ClusterConfig:
    """In the form in which Ray looks for it."""
    config = config if "available_node_types" in config else nodes(config)
    kinds, head, most = config["available_node_types"], config["head_node_type"], int(config["max_workers"])
    bounds = ClusterConfig()
    for name, kind in kinds.items():
        count = 1 if name == head else min(most, int(kind.get("max_workers", most)))
        bounds.node_group_configs.append(NodeGroupConfig(name=name, resources=counted(kind), max_count=count))
    workers = [one for one in bounds.node_group_configs if one.name != head]
    for name in COUNTED:  # of all nodes together there may be fewer than of each kind by itself
        bounds.max_resources[name] = largest(((one.resources[name], one.max_count) for one in workers), most)
        bounds.max_resources[name] += counted(kinds[head])[name]
    return bounds


def nodes(manifest: dict[str, Any]) -> dict[str, Any]:
    """The nodes of a manifest, as a cluster file has them. A pod has what it is limited to, or what it asks for."""
    _, asked = kuberay.cluster(manifest)
    if asked is None:
        raise KeyError("a cluster")
    kinds: dict[str, dict[str, Any]] = {
        "head": {"resources": {"CPU": asked["headGroupSpec"]["rayStartParams"]["num-cpus"]}}
    }
    for group in asked.get("workerGroupSpecs") or []:
        limited = kuberay.containers(group)[0].get("resources") or {}
        both = (limited.get("requests") or {}) | (limited.get("limits") or {})
        resources = {name: whole(both.get(key, 0)) for name, key in NAMED.items()}
        kinds[group["groupName"]] = {"resources": resources, "max_workers": group["maxReplicas"]}
    most = sum(kind.get("max_workers", 0) for kind in kinds.values())
    return {"available_node_types": kinds, "head_node_type": "head", "max_workers": most}


def whole(quantity: Any) -> int:
    """Of CPUs or GPUs, from `4` or `3500m`; Ray rounds up too."""
    text = str(quantity)
    return math.ceil(float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1))


def counted(kind: dict[str, Any]) -> dict[str, int]:
    """What workers are placed by, of a node."""
    return {name: int(kind["resources"].get(name, 0)) for name in COUNTED}


def largest(kinds: Iterable[tuple[int, int]], most: int) -> int:
    """What the best `most` nodes hold together."""
    return sum(sorted((held for held, count in kinds for _ in range(count)), reverse=True)[:most])


if __name__ == "__main__":
    sys.exit(main())
