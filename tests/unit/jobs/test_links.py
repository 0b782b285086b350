"""jobs.links refuses bad options, and measures the sums of real worker processes."""

import os
import sys

import pandas as pd
import pytest
import torch
import torch.distributed as dist

from equipoise.registries.all_reduce_registry import list_runnable_algorithms
from jobs import links
from jobs.links import LinksOptions, parse_size
from jobs.timing.message_bench import list_pairs
from jobs.timing.sent_bytes_counter import SentBytesCounter, find_interface_to, find_interfaces
from jobs.timing.sum_bench import measure_links
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

SIZES = (1 << 12, 1 << 18)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KiB", 65_536), ("1 MiB", 1 << 20), ("65536", 65_536), ("1.5kb", 1500), ("7B", 4), ("16GiB", 16 << 30)],
)
def test_sizes_are_read_in_bytes_of_whole_numbers(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(("0", "option-range"), ("3", "option-range"), ("17GiB", "option-range"), ("0.0MiB", "option-range")),
        *(("", "option-format"), ("-4", "option-format"), ("1TiB", "option-format"), ("1e6", "option-format")),
    ],
)
def test_size_out_of_range_or_of_another_form_is_refused(text, code):
    with raises_code(code):
        parse_size(text)


@pytest.mark.parametrize(
    "options", [{"workers": 1}, {"workers": -2}, {"workers": 2, "seconds": 0}, {"workers": 2, "seconds": float("nan")}]
)
def test_options_out_of_range_are_refused(options, tmp_path):
    with raises_code("option-range"):
        LinksOptions(out=tmp_path, **options).validate()


def test_sizes_are_sorted_and_distinct(tmp_path):
    assert LinksOptions(workers=2, out=tmp_path, sizes=("1MiB", "64KiB", "65536")).size_bytes == [1 << 16, 1 << 20]


def run_links(monkeypatch, out, *arguments):
    """Run the command and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["links", "--workers", "2", "--out", str(out), *arguments])
    return links.main()


def test_no_sizes_are_refused(tmp_path):
    with raises_code("option-missing"):
        LinksOptions(workers=2, out=tmp_path, sizes=()).validate()


@pytest.mark.parametrize("name", ["links.csv", "links.html"])
def test_folder_in_place_of_a_result_is_refused_before_anything_is_measured(name, tmp_path, monkeypatch, capsys):
    (tmp_path / name).mkdir()
    assert run_links(monkeypatch, tmp_path) == 2
    assert f"{name}: it is a folder" in capsys.readouterr().err


def test_folder_of_another_command_is_refused_before_ray_starts(tmp_path, monkeypatch, capsys):
    (tmp_path / "record.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["links", "--workers", "2", "--out", str(tmp_path)])
    assert links.main() == 2
    assert "it holds a run, and this command writes a link measurement" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("nodes", "inside", "between"),
    [
        ([7, 7], [(0, 1)], []),
        ([7, 8], [], [(0, 1)]),
        ([7, 7, 8, 8, 9], [(0, 1), (2, 3)], [(0, 2), (2, 4), (4, 0)]),
    ],
)
def test_pairs_are_inside_each_node_and_from_each_node_to_the_next(nodes, inside, between):
    assert list_pairs(nodes) == {"within a node": inside, "between nodes": between}


def test_many_nodes_are_not_all_timed():
    assert len(list_pairs(range(100))["between nodes"]) == 8


def test_first_worker_on_each_node_counts_for_all_of_it(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    counters = [SentBytesCounter([7, 7, 8], rank) for rank in range(3)]
    assert [counter.is_reader for counter in counters] == [True, False, True]
    assert counters[1].read() == 0 and all(counter.interfaces == ("lo", "lo") for counter in counters)


def test_interface_is_that_of_the_address():
    assert find_interface_to("127.0.0.1") == "lo"
    assert find_interface_to("no.such.host.invalid") is None
    assert find_interfaces(crosses_nodes=False, shares_nodes=True) == ("lo",)


def measure_small_links():
    """Return the report of every worker."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    report = measure_links(SIZES, 0.2, torch.device("cpu"))
    assert dist.is_initialized()
    return report


def test_all_algorithms_are_measured_on_real_workers(tmp_path):
    workers = 3
    first, *others = run_with_gloo(workers, tmp_path, measure_small_links)
    assert all(other.sums == first.sums and other.links == first.links for other in others)
    names = ["backend", *list_runnable_algorithms(workers)]
    assert [(row.algorithm, row.bytes) for row in first.sums] == [(name, size) for name in names for size in SIZES]
    assert [(link.level, link.pairs) for link in first.links] == [("within a node", 1)]
    assert all(0 < row.seconds_low <= row.seconds <= row.seconds_high for row in first.sums)
    table = first.to_table().set_index(["algorithm", "bytes"])
    assert isinstance(table, pd.DataFrame) and first.interfaces == ("lo",)
    size = SIZES[1]
    assert table.sent_bytes["direct", size] == (workers - 1) * size
    assert table.sent_bytes["backend", size] == pytest.approx(2 * (workers - 1) / workers * size)
    large = table.xs(size, level="bytes")
    assert (large.counted_bytes > 0.99 * large.sent_bytes).all()  # other programs of this machine may send too
    assert large.rounds["direct"] == 1 and large.rounds["backend"] == 2 * (workers - 1)
