"""The repository's cluster files are valid, and mistakes that Ray's own validation accepts are found before launch."""

import copy
import importlib
from pathlib import Path

import pytest
import yaml

from jobs.cluster.ray_internals import prepare_config, validate_config
from jobs.cluster.validate import LOCAL_PROVIDER, main, validate_cluster_file

ROOT = Path(__file__).parents[3]
AWS, GCP, LOCAL = ROOT / "cluster.yaml", ROOT / "cluster.gcp.yaml", ROOT / "cluster.local.yaml"


def load_changed_config(path, keys, change):
    """Load a cluster file and apply a change to the value at the given keys."""
    config = copy.deepcopy(yaml.safe_load(path.read_text()))
    value = config
    for key in keys:
        value = value[key]
    change(value)
    return config


@pytest.mark.parametrize("path", [AWS, GCP, LOCAL])
def test_cluster_file_of_the_repository_is_valid(path):
    assert validate_cluster_file(path) == []


MISTAKES = {
    "unknown provider key": (
        AWS,
        ["provider"],
        lambda value: value.update(regoin="eu"),
        "provider.regoin: Ray reads no such key",
    ),
    "unknown EC2 field": (
        AWS,
        ["available_node_types", "gpu", "node_config"],
        lambda value: value.update(InstanceTyp="g5.xlarge"),
        'available_node_types.gpu.node_config: Unknown parameter in input: "InstanceTyp"',
    ),
    "unknown nested EC2 field": (
        AWS,
        ["available_node_types", "head", "node_config", "MetadataOptions"],
        lambda value: value.update(HttpToken="required"),
        'Unknown parameter in MetadataOptions: "HttpToken"',
    ),
    "unknown instance type": (
        AWS,
        ["available_node_types", "gpu", "node_config"],
        lambda value: value.update(InstanceType="g5.xlagre"),
        "'g5.xlagre' is not an instance type",
    ),
    "unknown Google field": (
        GCP,
        ["available_node_types", "gpu", "node_config"],
        lambda value: value.update(machinetype="g2-standard-4"),
        "node_config.machinetype: Compute Engine has no such field",
    ),
    "unknown nested Google field": (
        GCP,
        ["available_node_types", "head", "node_config", "disks", 0, "initializeParams"],
        lambda value: value.update(diskSizeGB=50),
        "disks[0].initializeParams.diskSizeGB: Compute Engine has no such field",
    ),
    "head node with CPUs": (
        AWS,
        ["available_node_types", "head", "resources"],
        lambda value: value.update(CPU=4),
        "set CPU: 0",
    ),
    "image without this version of Ray": (
        AWS,
        ["docker"],
        lambda value: value.update(worker_image="rayproject/ray:latest-gpu"),
        "docker.worker_image: rayproject/ray:latest-gpu does not have Ray",
    ),
    "no token authentication": (
        AWS,
        [],
        lambda value: value.update(worker_start_ray_commands=["ray start --address=$RAY_HEAD_IP:6379"]),
        "worker_start_ray_commands: anyone who reaches a port can run code",
    ),
    "no start command": (AWS, [], lambda value: value.pop("head_start_ray_commands"), "no command starts Ray"),
    "public dashboard": (
        AWS,
        [],
        lambda value: value.update(
            head_start_ray_commands=[
                "RAY_AUTH_MODE=token ray start --head --dashboard-host=0.0.0.0",
                "jobs.cluster.limits",
            ]
        ),
        "the dashboard listens on 0.0.0.0",
    ),
    "limits not passed to Ray": (
        AWS,
        ["head_start_ray_commands"],
        lambda value: value.pop(),
        "runs python -m jobs.cluster.limits",
    ),
    "foreign node provider": (
        LOCAL,
        ["provider"],
        lambda value: value.update(module="theirs.Provider"),
        "theirs.Provider would run on this machine",
    ),
    "machine option on a local node": (
        LOCAL,
        ["available_node_types", "slot", "node_config"],
        lambda value: value.update(InstanceType="g5.xlarge"),
        "slot.node_config.InstanceType: nodes on this machine read no such key",
    ),
}


def test_unknown_keys_that_are_not_strings_are_named(tmp_path):
    config = load_changed_config(LOCAL, ["provider"], lambda value: value.update({1: 2, "zz": 3}))
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert [problem.split(":")[0] for problem in validate_cluster_file(tmp_path / "cluster.yaml")] == [
        "provider.1",
        "provider.zz",
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_that_ray_accepts_is_found(name, tmp_path):
    path, keys, change, message = MISTAKES[name]
    config = load_changed_config(path, keys, change)
    validate_config(prepare_config(copy.deepcopy(config)))  # Ray accepts it
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    problems = validate_cluster_file(tmp_path / "cluster.yaml")
    assert problems and all(message in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster_name: [", "cannot be read"),
        ("- a list", "holds a list: a cluster file is a mapping"),
        ("cluster_name: x\nmax_wrokers: 3\nprovider: {type: aws, region: x}", "Ray rejects it"),
        ("", "holds nothing: a cluster file is a mapping"),
        ("\x00", "cannot be read"),
        ("a: !!bool x", "cannot be read"),
        ("a: 2024-13-45", "month must be in 1..12"),
        (f"a: {'9' * 5000}", "cannot be read"),
        ("[" * 5000, "cannot be read"),
        ("provider:", "provider must be a mapping, but is nothing"),
        ("cluster_name: x\nmax_workers: 1\nprovider: {type: external}", "Ray rejects it: setup_commands is missing"),
        (LOCAL.read_text().replace("head_node_type:", "#"), "head_node_type is missing"),
        ("available_node_types: {one: x}", "available_node_types.one must be a mapping, but is 'x'"),
    ],
)
def test_invalid_and_missing_files_are_reported_in_one_line_each(tmp_path, text, message, capsys, monkeypatch):
    (tmp_path / "cluster.yaml").write_text(text)
    monkeypatch.setattr("sys.argv", ["launchable", str(tmp_path / "cluster.yaml"), str(tmp_path / "none")])
    assert main() == 2
    invalid_line, missing_line = capsys.readouterr().err.strip().splitlines()[-2:]
    assert message in invalid_line and "none: cannot be read" in missing_line


def test_node_provider_of_the_local_cluster_exists():
    module, _, name = LOCAL_PROVIDER.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)
    assert yaml.safe_load((ROOT / "cluster.local.yaml").read_text())["provider"]["module"] == LOCAL_PROVIDER
