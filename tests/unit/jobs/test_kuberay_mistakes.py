"""Mistakes that people make in a manifest for KubeRay are found, with what to do."""

import copy

import pytest
import ray
import yaml

from jobs.cluster.validate import validate_cluster_file
from tests.support.kuberay_manifests import CLUSTER, JOB, SERVICE, SHARED, get_value, load_manifests

pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # Ray Serve's schema

HEAD = ["spec", "headGroupSpec", "template", "spec"]


WORKER = ["spec", "workerGroupSpecs", 0]


MISTAKES = {
    "unknown field": (CLUSTER, ["spec"], {"enableInTreeAutoscalng": True}, "did you mean enableInTreeAutoscaling?"),
    "unknown field of a pod": (
        CLUSTER,
        [*WORKER, "template", "spec", "containers", 0],
        {"volumeMount": []},
        "RayCluster.spec.workerGroupSpecs[0].template.spec.containers[0].volumeMount: there is no such field",
    ),
    "number instead of a string": (
        CLUSTER,
        ["spec", "headGroupSpec", "rayStartParams"],
        {"num-cpus": 0},
        'rayStartParams.num-cpus: 0 is not of type string: write "0"',
    ),
    "boolean instead of a string": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"env": [{"name": "X", "value": True}]},
        'env[0].value: True is not of type string: write "true"',
    ),
    "string instead of a number": (
        CLUSTER,
        WORKER,
        {"maxReplicas": "eight"},
        "maxReplicas: 'eight' is not of type integer",
    ),
    "boolean instead of a number": (CLUSTER, WORKER, {"maxReplicas": True}, "maxReplicas: True is not of type integer"),
    "mapping instead of a list": (
        CLUSTER,
        HEAD,
        {"containers": {"name": "x"}},
        "containers: {'name': 'x'} is not of type list",
    ),
    "list instead of a mapping": (CLUSTER, HEAD, {"securityContext": []}, "securityContext: [] is not of type mapping"),
    "invalid memory unit": (
        CLUSTER,
        [*HEAD, "containers", 0, "resources", "requests"],
        {"memory": "8GB"},
        "memory: '8GB' is not of type quantity",
    ),
    "float instead of a quantity": (
        CLUSTER,
        [*HEAD, "containers", 0, "resources", "requests"],
        {"cpu": 2.5},
        'cpu: 2.5 is not of type quantity: write "2.5"',
    ),
    "empty list item": (CLUSTER, HEAD, {"containers": [None]}, "containers[0]: None is not of type mapping"),
    "empty pod template": (CLUSTER, ["spec", "headGroupSpec"], {"template": {}}, "give at least one"),
    "unknown authentication mode": (
        CLUSTER,
        ["spec", "authOptions"],
        {"mode": "tokens"},
        "'tokens' is not one of 'disabled', 'token'",
    ),
    "no containers": (CLUSTER, HEAD, {"containers": None}, "headGroupSpec.template.spec.containers is missing"),
    "empty containers": (CLUSTER, HEAD, {"containers": []}, "containers: give at least one"),
    "container without a name": (CLUSTER, [*HEAD, "containers", 0], {"name": None}, "containers[0].name is missing"),
    "no spec": (CLUSTER, [], {"spec": None}, "RayCluster.spec is missing"),
    "no version of Ray": (CLUSTER, ["spec"], {"rayVersion": None}, "rayVersion: None is not"),
    "another version of Ray": (JOB, ["spec", "rayClusterSpec"], {"rayVersion": "2.40.0"}, "rayVersion: 2.40.0 is not"),
    "image without this version of Ray": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"image": "rayproject/ray:latest"},
        "RayCluster.spec.headGroupSpec: the tag of image rayproject/ray:latest",
    ),
    "version of Ray in the registry name only": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"image": f"registry-{ray.__version__}:5000/ray"},
        "does not name Ray",
    ),
    "token authentication disabled": (
        CLUSTER,
        ["spec", "authOptions"],
        {"mode": "disabled"},
        "anyone who reaches a port can run code",
    ),
    "no token authentication": (
        JOB,
        ["spec", "rayClusterSpec"],
        {"authOptions": None},
        "rayClusterSpec.authOptions: anyone",
    ),
    "no token authentication of the service": (
        SERVICE,
        ["spec", "rayClusterConfig"],
        {"authOptions": {}},
        "rayClusterConfig.authOptions",
    ),
    "head node with CPUs": (CLUSTER, ["spec", "headGroupSpec"], {"rayStartParams": {}}, 'set num-cpus: "0"'),
    "limits not passed to Ray": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"lifecycle": None},
        "jobs.cluster.limits",
    ),
    "invalid name": (
        CLUSTER,
        ["metadata"],
        {"name": "Equipoise_1"},
        "metadata.name: 'Equipoise_1' is not a valid name",
    ),
    "name too long": (JOB, ["metadata"], {"name": "e" * 48}, "47 at most"),
    "minimum above maximum": (CLUSTER, WORKER, {"minReplicas": 9}, "minReplicas 9 is above maxReplicas 8"),
    "job without a cluster": (JOB, ["spec"], {"rayClusterSpec": None}, "RayJob.spec.rayClusterSpec is missing"),
    "cluster kept after the job": (
        JOB,
        ["spec"],
        {"shutdownAfterJobFinishes": False},
        "ttlSecondsAfterFinished: this has",
    ),
    "unknown kind": (CLUSTER, [], {"kind": "RayClutser"}, "ray.io/v1 RayClutser is not supported here"),
    "unsupported API version": (
        CLUSTER,
        [],
        {"apiVersion": "ray.io/v1alpha1"},
        "ray.io/v1alpha1 RayCluster is not supported",
    ),
    "unknown field of Ray Serve": (
        SERVICE,
        ["spec"],
        {"serveConfigV2": "applications: [{name: x, import_path: a:b, deployments: [{name: y, num_replica: 2}]}]"},
        "serveConfigV2.applications[0].deployments[0].num_replica: Ray Serve has no such field",
    ),
    "invalid value for Ray Serve": (
        SERVICE,
        ["spec"],
        {"serveConfigV2": "proxy_location: Nowhere"},
        "Ray Serve rejects it",
    ),
    "no configuration of Ray Serve": (SERVICE, ["spec"], {"serveConfigV2": None}, "Ray Serve rejects it"),
    "invalid YAML for Ray Serve": (
        SERVICE,
        ["spec"],
        {"serveConfigV2": "applications: ["},
        "serveConfigV2 is not valid YAML",
    ),
    "no readiness probe": (
        SERVICE,
        ["spec", "rayClusterConfig", "workerGroupSpecs", 0, "template", "spec", "containers", 0],
        {"readinessProbe": None},
        "RayService.spec.rayClusterConfig.workerGroupSpecs[0]: without Ray's proxy no pod becomes ready",
    ),
    "unknown field of a Kubernetes kind": (
        SHARED,
        ["spec"],
        {"accessMode": ["ReadWriteMany"]},
        "did you mean accessModes?",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found(name, tmp_path):
    path, keys, change, message = MISTAKES[name]
    manifest = copy.deepcopy(load_manifests(path)[0])
    get_value(manifest, keys).update(copy.deepcopy(change))
    (tmp_path / "slip.yaml").write_text(yaml.safe_dump(manifest))
    [first, *others] = validate_cluster_file(tmp_path / "slip.yaml")
    assert message in first
    assert all(message in problem for problem in others)
