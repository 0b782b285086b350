"""What is shipped can be launched, and what Ray's own validation lets pass is found before it costs money."""

import copy
import importlib
from pathlib import Path

import pytest
import yaml

from jobs.cluster.ray_internals import prepare_config, validate_config
from jobs.cluster.validate import LOCAL_PROVIDER, main, validate_cluster_file

ROOT = Path(__file__).parents[3]
AWS, GCP, LOCAL = ROOT / "cluster.yaml", ROOT / "cluster.gcp.yaml", ROOT / "cluster.local.yaml"


def changed(path, place, change):
    """A shipped file with one thing done to what lies at a place."""
    config = copy.deepcopy(yaml.safe_load(path.read_text()))
    held = config
    for name in place:
        held = held[name]
    change(held)
    return config


@pytest.mark.parametrize("path", [AWS, GCP, LOCAL])
def test_what_is_shipped_can_be_launched(path):
    assert validate_cluster_file(path) == []


TYPOS = {
    "provider": (AWS, ["provider"], lambda one: one.update(regoin="eu"), "provider.regoin: Ray reads no such key"),
    "EC2's field": (
        AWS,
        ["available_node_types", "gpu", "node_config"],
        lambda one: one.update(InstanceTyp="g5.xlarge"),
        'available_node_types.gpu.node_config: Unknown parameter in input: "InstanceTyp"',
    ),
    "EC2's field below": (
        AWS,
        ["available_node_types", "head", "node_config", "MetadataOptions"],
        lambda one: one.update(HttpToken="required"),
        'Unknown parameter in MetadataOptions: "HttpToken"',
    ),
    "an instance": (
        AWS,
        ["available_node_types", "gpu", "node_config"],
        lambda one: one.update(InstanceType="g5.xlagre"),
        "'g5.xlagre' is not an instance type",
    ),
    "Google's field": (
        GCP,
        ["available_node_types", "gpu", "node_config"],
        lambda one: one.update(machinetype="g2-standard-4"),
        "node_config.machinetype: Compute Engine has no such field",
    ),
    "Google's field below": (
        GCP,
        ["available_node_types", "head", "node_config", "disks", 0, "initializeParams"],
        lambda one: one.update(diskSizeGB=50),
        "disks[0].initializeParams.diskSizeGB: Compute Engine has no such field",
    ),
    "a head at work": (
        AWS,
        ["available_node_types", "head", "resources"],
        lambda one: one.update(CPU=4),
        "set CPU: 0",
    ),
    "another Ray": (
        AWS,
        ["docker"],
        lambda one: one.update(worker_image="rayproject/ray:latest-gpu"),
        "docker.worker_image: rayproject/ray:latest-gpu does not have Ray",
    ),
    "no token": (
        AWS,
        [],
        lambda one: one.update(worker_start_ray_commands=["ray start --address=$RAY_HEAD_IP:6379"]),
        "worker_start_ray_commands: anyone who reaches a port can run code",
    ),
    "Ray's own start": (AWS, [], lambda one: one.pop("head_start_ray_commands"), "no command starts Ray"),
    "an open dashboard": (
        AWS,
        [],
        lambda one: one.update(
            head_start_ray_commands=[
                "RAY_AUTH_MODE=token ray start --head --dashboard-host=0.0.0.0",
                "jobs.cluster.limits",
            ]
        ),
        "the dashboard listens on 0.0.0.0",
    ),
    "jobs kept in the dark": (
        AWS,
        ["head_start_ray_commands"],
        lambda one: one.pop(),
        "runs python -m jobs.cluster.limits",
    ),
    "code of others": (
        LOCAL,
        ["provider"],
        lambda one: one.update(module="theirs.Provider"),
        "theirs.Provider would run on this machine",
    ),
    "a node that is no machine": (
        LOCAL,
        ["available_node_types", "slot", "node_config"],
        lambda one: one.update(InstanceType="g5.xlarge"),
        "slot.node_config.InstanceType: nodes on this machine read no such key",
    ),
}


def test_keys_that_are_no_words_are_named_too(tmp_path):
    config = changed(LOCAL, ["provider"], lambda one: one.update({1: 2, "zz": 3}))
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert [one.split(":")[0] for one in validate_cluster_file(tmp_path / "cluster.yaml")] == [
        "provider.1",
        "provider.zz",
    ]


@pytest.mark.parametrize("name", TYPOS)
def test_what_ray_lets_pass_is_found(name, tmp_path):
    path, place, change, said = TYPOS[name]
    config = changed(path, place, change)
    validate_config(prepare_config(copy.deepcopy(config)))  # Ray lets it pass
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    found = validate_cluster_file(tmp_path / "cluster.yaml")
    assert found and all(said in one for one in found)


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_a_file_that_is_none_is_a_sentence(tmp_path, text, said, capsys, monkeypatch):
    (tmp_path / "cluster.yaml").write_text(text)
    monkeypatch.setattr("sys.argv", ["launchable", str(tmp_path / "cluster.yaml"), str(tmp_path / "none")])
    assert main() == 2
    one, other = capsys.readouterr().err.strip().splitlines()[-2:]
    assert said in one and "none: cannot be read" in other


def test_the_node_provider_of_the_local_cluster_exists():
    module, _, name = LOCAL_PROVIDER.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)
    assert yaml.safe_load((ROOT / "cluster.local.yaml").read_text())["provider"]["module"] == LOCAL_PROVIDER
