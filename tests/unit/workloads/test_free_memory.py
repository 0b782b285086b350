"""Free memory is that of the tightest limit."""

import resource

import psutil
import pytest

from equipoise.workloads.free_memory import find_cgroup_memory_left, find_free_memory, find_process_memory_left

MEGABYTE = 1 << 20


def write_cgroup(folder, limit, taken, inactive_file):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{taken}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive_file}\n")


def test_cached_files_of_a_control_group_are_free(tmp_path):
    write_cgroup(tmp_path, 500, 300, 120)
    assert find_cgroup_memory_left(tmp_path) == 320


def test_group_without_a_limit_gives_none(tmp_path):
    write_cgroup(tmp_path, "max", 300, 120)
    assert find_cgroup_memory_left(tmp_path) is None
    assert find_cgroup_memory_left(tmp_path / "none") is None


@pytest.fixture
def data_limit():
    """Limit of 200 MB above what this process has now."""
    previous = resource.getrlimit(resource.RLIMIT_DATA)
    taken = psutil.Process().memory_info().data
    resource.setrlimit(resource.RLIMIT_DATA, (taken + 200 * MEGABYTE, previous[1]))
    yield 200 * MEGABYTE
    resource.setrlimit(resource.RLIMIT_DATA, previous)


def test_limit_of_this_process_bounds_its_free_memory(data_limit):
    assert 0.9 * data_limit < find_process_memory_left() <= data_limit + MEGABYTE
    assert find_free_memory() <= data_limit + MEGABYTE


def test_without_limits_the_memory_of_the_machine_is_free():
    assert 0 < find_free_memory() <= psutil.virtual_memory().total
