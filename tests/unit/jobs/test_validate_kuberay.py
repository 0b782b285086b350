"""The KubeRay manifests of the repository are valid and secure, and mistakes in manifests are found."""

import copy
import fnmatch
import json
import re
import tomllib
from pathlib import Path

import pytest
import ray
import tyro
import yaml
from jsonschema import Draft202012Validator

from jobs.cluster.validate import validate_cluster_file
from jobs.cluster.validate_kuberay import (
    build_validator,
    find_cluster_spec,
    list_pod_groups,
    load_kuberay_schema,
    validate_manifests,
)
from jobs.ray_tune.sweep_options import SweepOptions
from services.settings import ReplicaSettings

pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # Ray Serve's schema

ROOT = Path(__file__).parents[3]
MANIFEST_FOLDER = ROOT / "services" / "kuberay"
CLUSTER, JOB, SERVICE, SHARED = (
    MANIFEST_FOLDER / f"{name}.yaml" for name in ("raycluster", "rayjob", "rayservice", "shared")
)


def load_manifests(path):
    return list(yaml.safe_load_all(path.read_text()))


def get_value(manifest, keys):
    value = manifest
    for key in keys:
        value = value[key]
    return value


@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE, SHARED], ids=lambda path: path.stem)
def test_manifest_of_the_repository_is_valid(path):
    assert validate_cluster_file(path) == []


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


def iterate_key_paths(value, path=()):
    """Yield the path of keys to every value in a manifest."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield (*path, key)
        yield from iterate_key_paths(child, (*path, key))


@pytest.mark.parametrize("wrong_value", [None, [], {}, 3, "x", True, [None], [{}]], ids=repr)
@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE, SHARED], ids=lambda path: path.stem)
def test_any_wrong_value_gives_a_list_of_one_line_problems(path, wrong_value):
    for manifest in load_manifests(path):
        for *parent_keys, key in iterate_key_paths(manifest):
            changed = copy.deepcopy(manifest)
            get_value(changed, parent_keys)[key] = copy.deepcopy(wrong_value)
            problems = validate_manifests([changed])
            assert all(isinstance(problem, str) and "\n" not in problem for problem in problems)


def test_job_may_select_an_existing_cluster(tmp_path):
    [job] = load_manifests(JOB)
    job["spec"] |= {"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "equipoise"}}
    assert validate_manifests([job]) == []


@pytest.mark.parametrize(
    "document", ["a text", 3, ["a list"], {"apiVersion": "v1"}, {"apiVersion": ["v1"], "kind": {}}]
)
def test_unsupported_document_is_one_problem(document):
    [problem] = validate_manifests([document])
    assert "is not supported here: choose one of ray.io/v1 RayCluster" in problem


def test_service_accepts_its_arguments_and_requires_a_key():
    [service] = load_manifests(SERVICE)
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    settings = ReplicaSettings.model_validate(application["args"])
    assert settings.api_keys_file == "/keys/keys"
    for _, group in list_pod_groups("", service["spec"]["rayClusterConfig"]):
        [container] = group["template"]["spec"]["containers"]
        assert settings.port in [port["containerPort"] for port in container["ports"] if port["name"] == "serve"]
        assert {"name": "keys", "mountPath": "/keys", "readOnly": True} in container["volumeMounts"]


def test_job_accepts_its_options():
    [job] = load_manifests(JOB)
    command = job["spec"]["entrypoint"].split()
    assert command[:3] == ["python", "-m", "jobs.sweep"]
    assert str(tyro.cli(SweepOptions, args=command[3:]).out).startswith("/shared/")


@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE], ids=lambda path: path.stem)
def test_network_policy_covers_every_pod(path):
    _, policy = load_manifests(SHARED)
    labels = policy["spec"]["podSelector"]["matchLabels"]
    _, cluster_spec = find_cluster_spec(load_manifests(path)[0])
    for _, group in list_pod_groups("", cluster_spec):
        assert group["template"]["metadata"]["labels"] == labels
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]


def test_image_has_our_version_of_ray_and_only_our_code():
    dockerfile = (MANIFEST_FOLDER / "Dockerfile").read_text()
    assert re.search(rf"^FROM rayproject/ray:{re.escape(ray.__version__)}-py311-cpu$", dockerfile, re.MULTILINE)
    first_line, *lines = (MANIFEST_FOLDER / "Dockerfile.dockerignore").read_text().splitlines()[1:]
    included = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert first_line == "*"
    texts = {project["project"]["readme"], *project["project"]["license-files"]}
    assert included == packages | {"pyproject.toml", "requirements.lock", *texts}


def test_schema_is_valid_and_complete():
    schema = load_kuberay_schema()
    for kind in schema["kinds"]:
        Draft202012Validator.check_schema(build_validator(kind).schema)
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references == schema["$defs"].keys()
    assert re.fullmatch(r"\d+\.\d+\.\d+", schema["versions"]["kuberay"])


def test_lint_checks_every_manifest():
    makefile = (ROOT / "Makefile").read_text()
    [pattern] = re.findall(r"services/kuberay/\S+", makefile)
    assert all(fnmatch.fnmatch(str(path.relative_to(ROOT)), pattern) for path in MANIFEST_FOLDER.glob("*.y*ml"))
