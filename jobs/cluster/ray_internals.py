"""Gather the private parts of Ray that jobs rely on: no other module imports them.

Nothing public does what they do, and Ray is pinned in pyproject.toml. tests/ray/test_ray_internals.py checks each of
them against the installed release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ray import _raylet
from ray._private import ray_constants
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._private.state import state
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

if TYPE_CHECKING:
    from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
    from ray.train.v2._internal.execution.callback import RayTrainCallback

__all__ = [
    "ClusterConfig",
    "DatasetsCallback",
    "FakeMultiNodeProvider",
    "Node",
    "NodeGroupConfig",
    "PlacementGroupCleanerCallback",
    "RayParams",
    "RayTrainCallback",
    "prepare_config",
    "put_cluster_config",
    "ray_constants",
    "state",
    "validate_config",
]

LAZY = {
    "DatasetsCallback": "ray.train.v2._internal.callbacks",
    "FakeMultiNodeProvider": "ray.autoscaler._private.fake_multi_node.node_provider",
    "PlacementGroupCleanerCallback": "ray.train.v2._internal.callbacks.placement_group_callback",
    "RayTrainCallback": "ray.train.v2._internal.execution.callback",
    "prepare_config": "ray.autoscaler._private.util",
    "validate_config": "ray.autoscaler._private.util",
}
"""names whose modules `import ray` does not load, by module: most commands need none of them, and they take a while"""


def __getattr__(name: str) -> Any:
    """Import a name of `LAZY` when it is first asked for."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def put_cluster_config(config: ClusterConfig) -> None:
    """Tell the cluster on this machine how far it may grow: `state.get_cluster_config` returns it from then on."""
    raylet: Any = _raylet
    gcs = raylet.GcsClient(address=canonicalize_bootstrap_address_or_die("auto"))
    key = raylet.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode()
    namespace = raylet.GCS_AUTOSCALER_STATE_NAMESPACE.encode()
    gcs.internal_kv_put(key, config.SerializeToString(), True, namespace)
