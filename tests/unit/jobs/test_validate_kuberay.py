"""The KubeRay manifests of the repository are valid and secure, and mistakes in manifests are found."""

import copy
import fnmatch
import json
import re
import tomllib

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
from tests.support.kuberay_manifests import (
    CLUSTER,
    JOB,
    MANIFEST_FOLDER,
    ROOT,
    SERVICE,
    SHARED,
    get_value,
    load_manifests,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # Ray Serve's schema


@pytest.mark.parametrize("path", [CLUSTER, JOB, SERVICE, SHARED], ids=lambda path: path.stem)
def test_manifest_of_the_repository_is_valid(path):
    assert validate_cluster_file(path) == []


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
