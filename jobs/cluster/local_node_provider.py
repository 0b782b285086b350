"""Node provider with which Ray's autoscaler starts and stops nodes that are processes of one machine."""

import json
from typing import Any

from ray.autoscaler.tags import (
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_NAME,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

from jobs.cluster.ray_internals import FakeMultiNodeProvider, Node, RayParams, ray_constants


class LocalNodeProvider(FakeMultiNodeProvider):
    """Ray's provider for its own tests, changed so that each node has its own folder for runtime environments.

    The nodes of Ray's provider share one folder, and each node removes a job's working directory there before it
    unpacks it: a job that waited for nodes lost the folder that it ran in when they started.
    """

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, resources: dict[str, float], labels: dict[str, str]
    ) -> None:
        standard = {"CPU", "GPU", "object_store_memory"}
        custom_resources = {name: value for name, value in resources.items() if name not in standard}
        with self.lock:
            name = self._next_hex_node_id()
            params = RayParams(
                min_worker_port=0,
                max_worker_port=0,
                dashboard_port=None,
                dashboard_agent_listen_port=0,
                num_cpus=resources.get("CPU", 0),
                num_gpus=resources.get("GPU", 0),
                object_store_memory=resources.get("object_store_memory"),
                resources=custom_resources,
                labels=labels,
                redis_address=self._gcs_address,
                gcs_address=self._gcs_address,
                node_ip_address="127.0.0.1",
                runtime_env_dir_name=f"runtime_resources_{name[-5:]}",
                env_vars={
                    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": name,
                    "RAY_CLOUD_INSTANCE_ID": name,
                    "RAY_NODE_TYPE_NAME": tags[TAG_RAY_USER_NODE_TYPE],
                    ray_constants.RESOURCES_ENVIRONMENT_VARIABLE: json.dumps(custom_resources),
                    ray_constants.LABELS_ENVIRONMENT_VARIABLE: json.dumps(labels),
                },
            )
            node = Node(params, head=False, shutdown_at_exit=False, spawn_reaper=False)
            standard_tags = {
                TAG_RAY_NODE_KIND: NODE_KIND_WORKER,
                TAG_RAY_NODE_NAME: name,
                TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
            }
            self._nodes[name] = {"tags": standard_tags | tags, "node": node}
