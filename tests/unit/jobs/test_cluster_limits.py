"""Limits to which clusters may grow, those of the repository and others."""

import itertools
from pathlib import Path

import pytest
import yaml

from jobs.cluster.limits import (
    build_cluster_limits,
    convert_kuberay_manifest,
    cpus_and_gpus,
    main,
    max_total_resource,
    read_cluster_limits,
    round_up_quantity,
)
from tests.support.errors import raises_code

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


@pytest.mark.parametrize(
    ("quantity", "count"),
    [("3500m", 4), ("3000m", 3), ("3001m", 4), ("1m", 1), ("0", 0), (2, 2), (2.5, 3), ("4", 4), ("0.5", 1), (0, 0)],
)
def test_fractional_cpus_are_rounded_up(quantity, count):
    assert round_up_quantity(quantity) == count


def test_node_without_a_resource_has_none_of_it():
    assert cpus_and_gpus({"resources": {}}) == {"CPU": 0, "GPU": 0}
    assert cpus_and_gpus({"resources": {"CPU": 3.0, "memory": 5}}) == {"CPU": 3, "GPU": 0}
    assert cpus_and_gpus({"resources": {"GPU": 2}}) == {"CPU": 0, "GPU": 2}


@pytest.mark.parametrize("max_nodes", range(7))
def test_nodes_that_hold_the_most_are_counted(max_nodes):
    amounts_and_counts = [(2, 3), (5, 1), (0, 2), (4, 1)]
    nodes = [2, 2, 2, 5, 0, 0, 4]
    most = max(sum(chosen) for chosen in itertools.combinations(nodes, max_nodes))
    assert max_total_resource(iter(amounts_and_counts), max_nodes) == most


def test_node_type_is_bounded_by_its_own_and_by_the_common_limit():
    node_types = {
        "head": {"resources": {"CPU": 3}, "max_workers": 7},
        "few": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 2},
        "many": {"resources": {"CPU": 2}, "max_workers": 9},
        "any": {"resources": {"CPU": 1}},
    }
    limits = build_cluster_limits({"available_node_types": node_types, "head_node_type": "head", "max_workers": 5})
    assert {group.name: group.max_count for group in limits.node_group_configs} == {
        "head": 1,
        "few": 2,
        "many": 5,
        "any": 5,
    }
    assert dict(limits.max_resources) == {"CPU": 3 + 2 * 8 + 3 * 2, "GPU": 2}


def build_manifest(*containers, max_replicas=3):
    worker_group = {
        "groupName": "workers",
        "maxReplicas": max_replicas,
        "template": {"spec": {"containers": list(containers)}},
    }
    spec = {"headGroupSpec": {"rayStartParams": {"num-cpus": "2"}}, "workerGroupSpecs": [worker_group]}
    return {"kind": "RayCluster", "spec": spec}


def test_pod_has_its_limits_or_else_its_requests():
    requests = {"cpu": "1500m", "nvidia.com/gpu": "1"}
    for resources, expected in (
        ({"requests": requests}, {"CPU": 2, "GPU": 1}),
        ({"requests": requests, "limits": {"cpu": "4"}}, {"CPU": 4, "GPU": 1}),
        ({"limits": {"cpu": 2}, "requests": None}, {"CPU": 2, "GPU": 0}),
        (None, {"CPU": 0, "GPU": 0}),
    ):
        config = convert_kuberay_manifest(
            build_manifest({"resources": resources}, {"resources": {"limits": {"cpu": 9}}})
        )
        assert config["available_node_types"]["workers"] == {"resources": expected, "max_workers": 3}


def test_replicas_of_all_groups_are_the_nodes_of_the_cluster():
    manifest = build_manifest({})
    manifest["spec"]["workerGroupSpecs"] += build_manifest({}, max_replicas=5)["spec"]["workerGroupSpecs"]
    manifest["spec"]["workerGroupSpecs"][1]["groupName"] = "others"
    config = convert_kuberay_manifest(manifest)
    assert config["max_workers"] == 8 and config["head_node_type"] == "head"
    assert config["available_node_types"]["head"] == {"resources": {"CPU": "2"}}
    assert dict(build_cluster_limits(manifest).max_resources) == {"CPU": 2, "GPU": 0}


def test_cluster_without_workers_does_not_grow():
    manifest = build_manifest({})
    manifest["spec"]["workerGroupSpecs"] = None
    assert dict(build_cluster_limits(manifest).max_resources) == {"CPU": 2, "GPU": 0}


def test_limits_are_read_from_a_file():
    assert read_cluster_limits(ROOT / "cluster.yaml") == load_limits("cluster.yaml")


def test_manifest_without_a_cluster_is_refused(tmp_path):
    (tmp_path / "job.yaml").write_text("kind: RayJob\nspec: {}\n")
    with raises_code("cluster-file", tmp_path / "job.yaml", "defines no cluster"):
        read_cluster_limits(tmp_path / "job.yaml")


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: !!bool x", "", "3", "available_node_types: 3", "max_workers: 1\n---\n"]
)
def test_invalid_cluster_file_is_reported_in_one_sentence(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "file").write_text(text)
    monkeypatch.setattr("sys.argv", ["bounds", str(tmp_path / "file")])
    assert main() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path}") and error.count("\n") == 1
