"""How far a cluster may grow, told to it: python -m jobs.bounds ~/ray_bootstrap_config.yaml

Ray keeps a place for this which its own autoscaler never fills, so that no job could tell what a cluster without
nodes may come to hold. To be run on the head, after `ray start`, on the file that the autoscaler goes by.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from ray import _raylet
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

COUNTED = ("CPU", "GPU")


def main() -> int:
    """Exit status: 0 told, 2 it could not be."""
    asked = argparse.ArgumentParser(prog="python -m jobs.bounds", description=__doc__)
    asked.add_argument("file", type=Path)
    path = asked.parse_args().file
    try:
        bounds = of(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        print(f"error: {path} is no cluster file: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    ray: Any = _raylet  # nothing public writes there
    gcs = ray.GcsClient(address=canonicalize_bootstrap_address_or_die("auto"))
    key, space = ray.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode(), ray.GCS_AUTOSCALER_STATE_NAMESPACE.encode()
    gcs.internal_kv_put(key, bounds.SerializeToString(), True, space)
    return 0


def of(config: dict[str, Any]) -> ClusterConfig:
    """In the form in which Ray looks for it."""
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


def counted(kind: dict[str, Any]) -> dict[str, int]:
    """What workers are placed by, of a node."""
    return {name: int(kind["resources"].get(name, 0)) for name in COUNTED}


def largest(kinds: Iterable[tuple[int, int]], most: int) -> int:
    """What the best `most` nodes hold together."""
    return sum(sorted((held for held, count in kinds for _ in range(count)), reverse=True)[:most])


if __name__ == "__main__":
    sys.exit(main())
