"""How far the clusters that are shipped may grow."""

from pathlib import Path

import pytest
import yaml

from jobs.cluster.limits import build_cluster_limits, main, round_up_quantity

ROOT = Path(__file__).parents[3]


def of(name):
    return build_cluster_limits(yaml.safe_load((ROOT / name).read_text()))


def test_the_local_cluster_may_grow_to_four_slots():
    found = of("cluster.local.yaml")
    assert {one.name: (one.max_count, dict(one.resources)) for one in found.node_group_configs} == {
        "ray.head.default": (1, {"CPU": 0, "GPU": 0}),
        "slot": (4, {"CPU": 1, "GPU": 0}),
    }
    assert dict(found.max_resources) == {"CPU": 4, "GPU": 0}


def test_eight_machines_hold_no_more_than_the_eight_largest():
    most = of("cluster.yaml").max_resources
    assert most["GPU"] == 4 * 4 + 4 * 1  # two of each type with four, and four more
    assert most["CPU"] == 4 * 48 + 4 * 4


def test_a_cluster_on_kubernetes_may_grow_to_its_replicas():
    found = of("services/kuberay/raycluster.yaml")
    assert {one.name: (one.max_count, dict(one.resources)) for one in found.node_group_configs} == {
        "head": (1, {"CPU": 0, "GPU": 0}),
        "gpu": (8, {"CPU": 4, "GPU": 1}),
    }
    assert dict(found.max_resources) == {"CPU": 32, "GPU": 8}
    assert dict(of("services/kuberay/rayjob.yaml").max_resources) == dict(found.max_resources)


def test_parts_of_a_cpu_are_rounded_up():
    assert [round_up_quantity(one) for one in ("3500m", 2, "4", 0)] == [4, 2, 4, 0]


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: !!bool x", "", "3", "available_node_types: 3", "max_workers: 1\n---\n"]
)
def test_what_is_no_cluster_file_is_a_sentence(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "file").write_text(text)
    monkeypatch.setattr("sys.argv", ["bounds", str(tmp_path / "file")])
    assert main() == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {tmp_path}") and said.count("\n") == 1
