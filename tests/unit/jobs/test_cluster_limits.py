"""Limits to which the clusters of the repository may grow."""

from pathlib import Path

import pytest
import yaml

from jobs.cluster.limits import build_cluster_limits, main, round_up_quantity

ROOT = Path(__file__).parents[3]


def load_limits(name):
    return build_cluster_limits(yaml.safe_load((ROOT / name).read_text()))


def test_local_cluster_grows_to_four_slots():
    limits = load_limits("cluster.local.yaml")
    assert {group.name: (group.max_count, dict(group.resources)) for group in limits.node_group_configs} == {
        "ray.head.default": (1, {"CPU": 0, "GPU": 0}),
        "slot": (4, {"CPU": 1, "GPU": 0}),
    }
    assert dict(limits.max_resources) == {"CPU": 4, "GPU": 0}


def test_max_resources_are_those_of_the_eight_largest_machines():
    max_resources = load_limits("cluster.yaml").max_resources
    assert max_resources["GPU"] == 4 * 4 + 4 * 1  # two machines of each type with four GPUs, and four with one
    assert max_resources["CPU"] == 4 * 48 + 4 * 4


def test_kubernetes_cluster_grows_to_its_max_replicas():
    limits = load_limits("services/kuberay/raycluster.yaml")
    assert {group.name: (group.max_count, dict(group.resources)) for group in limits.node_group_configs} == {
        "head": (1, {"CPU": 0, "GPU": 0}),
        "gpu": (8, {"CPU": 4, "GPU": 1}),
    }
    assert dict(limits.max_resources) == {"CPU": 32, "GPU": 8}
    assert dict(load_limits("services/kuberay/rayjob.yaml").max_resources) == dict(limits.max_resources)


def test_fractional_cpus_are_rounded_up():
    assert [round_up_quantity(quantity) for quantity in ("3500m", 2, "4", 0)] == [4, 2, 4, 0]


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: !!bool x", "", "3", "available_node_types: 3", "max_workers: 1\n---\n"]
)
def test_invalid_cluster_file_is_reported_in_one_sentence(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "file").write_text(text)
    monkeypatch.setattr("sys.argv", ["bounds", str(tmp_path / "file")])
    assert main() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path}") and error.count("\n") == 1
