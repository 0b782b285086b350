"""The manifests that are shipped fit what KubeRay publishes and keep shut what has to be; slips are found."""

import copy
import fnmatch
import re
import tomllib
from pathlib import Path

import pytest
import ray
import tyro
import yaml

from jobs.cluster.validate import validate_cluster_file
from jobs.cluster.validate_kuberay import (
    PYTHON_TYPES_BY_KIND,
    find_cluster_spec,
    list_pod_groups,
    load_kuberay_schema,
    validate_manifests,
)
from jobs.sweep import SweepOptions
from services.settings import ReplicaSettings

pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # Ray Serve's schema

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "services" / "kuberay"
CLUSTER, JOB, SERVICE, SHARED = (FOLDER / f"{name}.yaml" for name in ("raycluster", "rayjob", "rayservice", "shared"))


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


def at(held, place):
    for name in place:
        held = held[name]
    return held


@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE, SHARED], ids=lambda path: path.stem)
def test_what_is_shipped_fits(path):
    assert validate_cluster_file(path) == []


HEAD = ["spec", "headGroupSpec", "template", "spec"]
WORKER = ["spec", "workerGroupSpecs", 0]
SLIPS = {
    "a field": (CLUSTER, ["spec"], {"enableInTreeAutoscalng": True}, "did you mean enableInTreeAutoscaling?"),
    "a field of a pod": (
        CLUSTER,
        [*WORKER, "template", "spec", "containers", 0],
        {"volumeMount": []},
        "RayCluster.spec.workerGroupSpecs[0].template.spec.containers[0].volumeMount: there is no such field",
    ),
    "a number for a text": (
        CLUSTER,
        ["spec", "headGroupSpec", "rayStartParams"],
        {"num-cpus": 0},
        'rayStartParams.num-cpus: 0 is not of type string: write "0"',
    ),
    "a truth for a text": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"env": [{"name": "X", "value": True}]},
        'env[0].value: True is not of type string: write "true"',
    ),
    "a text for a number": (CLUSTER, WORKER, {"maxReplicas": "eight"}, "maxReplicas: 'eight' is not of type integer"),
    "a truth for a number": (CLUSTER, WORKER, {"maxReplicas": True}, "maxReplicas: True is not of type integer"),
    "a mapping for a list": (
        CLUSTER,
        HEAD,
        {"containers": {"name": "x"}},
        "containers: {'name': 'x'} is not of type list",
    ),
    "a list for a mapping": (CLUSTER, HEAD, {"securityContext": []}, "securityContext: [] is not of type mapping"),
    "memory": (
        CLUSTER,
        [*HEAD, "containers", 0, "resources", "requests"],
        {"memory": "8GB"},
        "memory: '8GB' is not of type quantity",
    ),
    "a part of a processor": (
        CLUSTER,
        [*HEAD, "containers", 0, "resources", "requests"],
        {"cpu": 2.5},
        'cpu: 2.5 is not of type quantity: write "2.5"',
    ),
    "an empty one in a list": (CLUSTER, HEAD, {"containers": [None]}, "containers[0]: None is not of type mapping"),
    "no pod": (CLUSTER, ["spec", "headGroupSpec"], {"template": {}}, "give at least one"),
    "a mode": (CLUSTER, ["spec", "authOptions"], {"mode": "tokens"}, "'tokens' is not one of 'disabled', 'token'"),
    "no containers": (CLUSTER, HEAD, {"containers": None}, "headGroupSpec.template.spec.containers is missing"),
    "empty containers": (CLUSTER, HEAD, {"containers": []}, "containers: give at least one"),
    "no name of a container": (CLUSTER, [*HEAD, "containers", 0], {"name": None}, "containers[0].name is missing"),
    "no spec": (CLUSTER, [], {"spec": None}, "RayCluster.spec is missing"),
    "no version of Ray": (CLUSTER, ["spec"], {"rayVersion": None}, "rayVersion: None is not"),
    "another Ray": (JOB, ["spec", "rayClusterSpec"], {"rayVersion": "2.40.0"}, "rayVersion: 2.40.0 is not"),
    "another image": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"image": "rayproject/ray:latest"},
        "RayCluster.spec.headGroupSpec: the tag of image rayproject/ray:latest",
    ),
    "an image's registry": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"image": f"registry-{ray.__version__}:5000/ray"},
        "does not name Ray",
    ),
    "token off": (CLUSTER, ["spec", "authOptions"], {"mode": "disabled"}, "anyone who reaches a port can run code"),
    "no token": (JOB, ["spec", "rayClusterSpec"], {"authOptions": None}, "rayClusterSpec.authOptions: anyone"),
    "no token to serve": (SERVICE, ["spec", "rayClusterConfig"], {"authOptions": {}}, "rayClusterConfig.authOptions"),
    "a head at work": (CLUSTER, ["spec", "headGroupSpec"], {"rayStartParams": {}}, 'set num-cpus: "0"'),
    "a head that keeps bounds to itself": (
        CLUSTER,
        [*HEAD, "containers", 0],
        {"lifecycle": None},
        "jobs.cluster.limits",
    ),
    "a name": (CLUSTER, ["metadata"], {"name": "Equipoise_1"}, "metadata.name: 'Equipoise_1' is not a valid name"),
    "a long name": (JOB, ["metadata"], {"name": "e" * 48}, "47 at most"),
    "more than most": (CLUSTER, WORKER, {"minReplicas": 9}, "minReplicas 9 is above maxReplicas 8"),
    "a job on nothing": (JOB, ["spec"], {"rayClusterSpec": None}, "RayJob.spec.rayClusterSpec is missing"),
    "a cluster that stays": (JOB, ["spec"], {"shutdownAfterJobFinishes": False}, "ttlSecondsAfterFinished: this has"),
    "another kind": (CLUSTER, [], {"kind": "RayClutser"}, "ray.io/v1 RayClutser is not supported here"),
    "another version": (CLUSTER, [], {"apiVersion": "ray.io/v1alpha1"}, "ray.io/v1alpha1 RayCluster is not supported"),
    "Serve's field": (
        SERVICE,
        ["spec"],
        {"serveConfigV2": "applications: [{name: x, import_path: a:b, deployments: [{name: y, num_replica: 2}]}]"},
        "serveConfigV2.applications[0].deployments[0].num_replica: Ray Serve has no such field",
    ),
    "Serve's value": (SERVICE, ["spec"], {"serveConfigV2": "proxy_location: Nowhere"}, "Ray Serve rejects it"),
    "Serve's nothing": (SERVICE, ["spec"], {"serveConfigV2": None}, "Ray Serve rejects it"),
    "Serve's YAML": (SERVICE, ["spec"], {"serveConfigV2": "applications: ["}, "serveConfigV2 is not valid YAML"),
    "nobody to ask": (
        SERVICE,
        ["spec", "rayClusterConfig", "workerGroupSpecs", 0, "template", "spec", "containers", 0],
        {"readinessProbe": None},
        "RayService.spec.rayClusterConfig.workerGroupSpecs[0]: without Ray's proxy no pod becomes ready",
    ),
    "Kubernetes' own": (SHARED, ["spec"], {"accessMode": ["ReadWriteMany"]}, "did you mean accessModes?"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_found(name, tmp_path):
    path, place, change, said = SLIPS[name]
    manifest = copy.deepcopy(documents(path)[0])
    at(manifest, place).update(copy.deepcopy(change))
    (tmp_path / "slip.yaml").write_text(yaml.safe_dump(manifest))
    [found, *more] = validate_cluster_file(tmp_path / "slip.yaml")
    assert said in found
    assert all(said in one for one in more)


def places(held, path=()):
    """Every place in a manifest."""
    parts = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for name, one in parts:
        yield (*path, name)
        yield from places(one, (*path, name))


@pytest.mark.parametrize("odd", [None, [], {}, 3, "x", True, [None], [{}]], ids=repr)
@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE, SHARED], ids=lambda path: path.stem)
def test_whatever_stands_anywhere_is_a_list_of_sentences(path, odd):
    for manifest in documents(path):
        for *above, name in places(manifest):
            other = copy.deepcopy(manifest)
            at(other, above)[name] = copy.deepcopy(odd)
            assert all(isinstance(one, str) and "\n" not in one for one in validate_manifests([other]))


def test_a_job_may_run_on_a_cluster_that_is_there(tmp_path):
    [job] = documents(JOB)
    job["spec"] |= {"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "equipoise"}}
    assert validate_manifests([job]) == []


@pytest.mark.parametrize("odd", ["a text", 3, ["a list"], {"apiVersion": "v1"}, {"apiVersion": ["v1"], "kind": {}}])
def test_what_is_no_manifest_is_a_sentence(odd):
    [said] = validate_manifests([odd])
    assert "is not supported here: choose one of ray.io/v1 RayCluster" in said


def test_the_service_takes_its_arguments_and_asks_for_a_key():
    [service] = documents(SERVICE)
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    asked = ReplicaSettings.model_validate(application["args"])
    assert asked.api_keys_file == "/keys/keys"
    for _, group in list_pod_groups("", service["spec"]["rayClusterConfig"]):
        [container] = group["template"]["spec"]["containers"]
        assert asked.port in [one["containerPort"] for one in container["ports"] if one["name"] == "serve"]
        assert {"name": "keys", "mountPath": "/keys", "readOnly": True} in container["volumeMounts"]


def test_the_job_takes_its_options():
    [job] = documents(JOB)
    words = job["spec"]["entrypoint"].split()
    assert words[:3] == ["python", "-m", "jobs.sweep"]
    assert str(tyro.cli(SweepOptions, args=words[3:]).out).startswith("/shared/")


@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE], ids=lambda path: path.stem)
def test_the_policy_holds_for_every_pod(path):
    _, policy = documents(SHARED)
    held = policy["spec"]["podSelector"]["matchLabels"]
    _, asked = find_cluster_spec(documents(path)[0])
    for _, group in list_pod_groups("", asked):
        assert group["template"]["metadata"]["labels"] == held
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]


def test_the_image_is_of_our_ray_and_takes_code_along_alone():
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert re.search(rf"^FROM rayproject/ray:{re.escape(ray.__version__)}-py311-cpu$", dockerfile, re.MULTILINE)
    everything, *lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()[1:]
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {one.removesuffix("*") for one in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert everything == "*"
    assert kept == packages | {"pyproject.toml", "requirements.lock", project["project"]["readme"], "LICENSE"}


def test_what_is_published_is_names_and_types():
    found = load_kuberay_schema()
    words = {*PYTHON_TYPES_BY_KIND, "any"}
    for shape in found["shapes"]:
        parts = [*shape.get("fields", {}).values(), *(shape[name] for name in ("each", "values") if name in shape)]
        assert all(one in words or one in range(len(found["shapes"])) for one in parts)
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["versions"]["kuberay"])


def test_lint_looks_at_every_manifest():
    makefile = (ROOT / "Makefile").read_text()
    [pattern] = re.findall(r"services/kuberay/\S+", makefile)
    assert all(fnmatch.fnmatch(str(path.relative_to(ROOT)), pattern) for path in FOLDER.glob("*.y*ml"))
