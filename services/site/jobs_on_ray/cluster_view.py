"""How many nodes and slots Ray has, and how many of them are busy."""

import time
from dataclasses import dataclass
from functools import lru_cache

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from jobs.site_ray.ray_dashboard import RayDashboard

ASK_EVERY_SECONDS = 5.0  # however many look
ASK_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class ClusterUse:
    """Nodes and slots of a cluster; a slot is a CPU, or a GPU where there are some."""

    nodes: int
    slots: float
    busy_slots: float
    unit: str
    """CPU or GPU"""
    problem: str = ""
    """why nothing is known; empty if something is"""

    def describe(self) -> str:
        """Return the use in words, such as `1 node: 2 of 4 CPUs busy`."""
        if self.problem:
            return self.problem
        return f"{pluralize(self.nodes, 'node')}: {self.busy_slots:g} of {pluralize(round(self.slots), self.unit)} busy"


def describe_cluster_use(ray: RayDashboard | None) -> ClusterUse:
    """Return the use of the cluster as it was at most a few seconds ago."""
    if ray is None:
        return ClusterUse(nodes=0, slots=0, busy_slots=0, unit="CPU", problem="no Ray: this site shows results alone")
    return ask_cluster_use(ray, int(time.monotonic() / ASK_EVERY_SECONDS))


@lru_cache(maxsize=4)
def ask_cluster_use(ray: RayDashboard, _: int) -> ClusterUse:
    """Ask Ray for its use; the second argument changes every few seconds."""
    try:
        status = ray.request("GET", "/api/cluster_status", timeout=ASK_TIMEOUT_SECONDS)["data"]["clusterStatus"]
        usage = status["loadMetricsReport"]["usage"]
        nodes = sum(status["autoscalerReport"]["activeNodes"].values())
    except EquipoiseError as error:
        return ClusterUse(nodes=0, slots=0, busy_slots=0, unit="CPU", problem=str(error))
    except (KeyError, TypeError, AttributeError):  # it has just started, and does not know its nodes yet
        return ClusterUse(nodes=0, slots=0, busy_slots=0, unit="CPU", problem="Ray is starting")
    unit = "GPU" if usage.get("GPU", [0, 0])[1] else "CPU"
    busy, slots = usage.get(unit, [0, 0])
    return ClusterUse(nodes=nodes, slots=slots, busy_slots=busy, unit=unit)
