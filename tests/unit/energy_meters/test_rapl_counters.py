"""Counters of processors are read from a tree of files like that of Linux, and each of them by one worker."""

import pytest
import torch

from equipoise.energy_meters.rapl_counters import open_rapl_counters
from equipoise.energy_meters.worker_meter import is_first_on_node, open_worker_meter
from tests.support.rapl_zones import RANGE_MICROJOULES, count_joules, write_rapl_zone

CPU = torch.device("cpu")


def test_packages_and_memories_are_summed_and_what_they_contain_is_not(tmp_path):
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    files = [write_rapl_zone(tmp_path, zone, name) for zone, name in zones.items()]
    meter = open_worker_meter(CPU, 0, tmp_path)
    assert len(meter.counters) == 3
    for power, file in enumerate(files):
        count_joules(file, 10.0**power)
    assert meter.read_joules() == pytest.approx(1 + 100 + 1000)
    meter.begin()
    assert meter.read_joules() == 0
    count_joules(files[0], 5.5)
    assert meter.read_joules() == pytest.approx(5.5)


def test_counter_that_begins_at_0_again_goes_on_counting(tmp_path):
    file = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", RANGE_MICROJOULES - 2_000_000)
    (counter,) = open_rapl_counters(tmp_path)
    for _ in range(3):
        count_joules(file, 100_000.0)
        counter.read_joules()
    assert counter.read_joules() == pytest.approx(300_000)


@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_machine_of_which_one_package_cannot_be_read_tells_none(tmp_path, damage):
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    file = write_rapl_zone(tmp_path, "intel-rapl:1", "package-1")
    if damage == "missing":
        file.unlink()
    else:
        file.write_text("")
    assert open_rapl_counters(tmp_path) == [] == open_rapl_counters(tmp_path / "nowhere")
    assert open_worker_meter(CPU, 0, tmp_path).read_joules() == 0


def test_first_worker_of_a_node_reads_its_processors(tmp_path, monkeypatch):
    assert is_first_on_node(4, {"LOCAL_RANK": "0"}) and not is_first_on_node(0, {"LOCAL_RANK": "1"})
    assert is_first_on_node(0, {}) and not is_first_on_node(1, {})
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert [len(open_worker_meter(CPU, rank, tmp_path).counters) for rank in (0, 1)] == [1, 0]
