"""jobs.links on a real cluster: workers that do not fit are refused, and both files are written, also again."""

import json
import sys

import pandas as pd
import pytest

from equipoise.planning.exchanges.exchange_columns import read_algorithm_times
from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.registries.all_reduce_registry import list_runnable_algorithms

COMMAND = (sys.executable, "-m", "jobs.links", "--sizes", "4KiB", "64KiB", "--seconds", "1")


def test_more_workers_than_the_cluster_holds_are_refused(cluster, tmp_path):
    result = cluster.run(*COMMAND, "--workers", "3", "--out", str(tmp_path / "links"))
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert (
        "cannot run 3 workers: the cluster holds at most 2 slots" in result.stderr and "--threads" not in result.stderr
    )
    assert not (tmp_path / "links").exists()


@pytest.mark.slow
@pytest.mark.thorough
def test_command_writes_table_and_page_and_writes_them_again(cluster, tmp_path):
    out = tmp_path / "links"
    (out / "ray").mkdir(parents=True)  # of the user: Ray's own files lie elsewhere
    for _ in range(2):
        result = cluster.run(*COMMAND, "--workers", "2", "--out", str(out))
        assert result.returncode == 0, result.stderr
        assert "within a node: " in result.stdout and "from 4 KiB to " in result.stdout
        assert sorted(path.name for path in out.iterdir()) == [".lock", "links.csv", "links.html", "links.json", "ray"]
    table = pd.read_csv(out / "links.csv")
    assert len(table) == 2 * (1 + len(list_runnable_algorithms(2)))
    assert len(read_algorithm_times(out / "links.csv")) == len(table) - 2
    report = LinkReport.from_json(json.loads((out / "links.json").read_text()))
    assert [row.seconds for row in report.sums] == pytest.approx(table.seconds.tolist())
    assert [link.level for link in report.links] == ["within a node"]
    assert "2 workers on 1 node" in (out / "links.html").read_text()
