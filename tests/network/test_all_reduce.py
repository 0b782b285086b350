"""Every all-reduce algorithm between hosts: the same bits on all of them, and as many bytes as its closed form says."""

import sys

import pandas as pd
import pytest
import torch

from equipoise.planning.exchanges.closed_forms import BACKEND_FORM
from equipoise.planning.exchanges.exchange_columns import read_algorithm_times
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.all_reduce_registry import list_runnable_algorithms
from tests.network.delayed_lan import create_delayed_lan, find_missing_tun
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan, find_missing_requirement
from tests.network.spread_workers import start_spread_cluster

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
needs_tun = pytest.mark.skipif(find_missing_tun() is not None, reason=str(find_missing_tun()))
COUNTS = (1, 1000, 100_003)
SIZES = (1 << 20, 3 << 20)
DELAY_SECONDS, MEGABITS = 0.005, 200.0


def require_equal_sums(sums_by_host):
    """Check the sums of every algorithm, as the hosts report them."""
    first, *others = sums_by_host
    ranks = len(sums_by_host)
    assert [*first] == ["backend", *list_runnable_algorithms(ranks)]
    for name, sums in first.items():
        assert all(other[name] == sums for other in others), name  # the same bits on all hosts
        assert all(row["is_exact"] and row["error"] <= ranks * torch.finfo(torch.float32).eps for row in sums)


@pytest.mark.parametrize("host_count", [3, 4])
def test_every_algorithm_sums_to_the_same_bits_and_sends_the_bytes_of_its_closed_form(host_count):
    with create_lan(host_count) as hosts:
        sums, sent = zip(*run_on_hosts(hosts, "tests.network.host_sums:check_and_count", COUNTS, SIZES), strict=True)
    require_equal_sums(sums)
    for rows in zip(*sent, strict=True):
        [(name, size)] = {(name, size) for name, size, _, _ in rows}
        cost = all_reduce_cost(BACKEND_FORM if name == "backend" else name, host_count, size, host_count)
        scheduled, counted = ([row[index] for row in rows] for index in (2, 3))
        assert sum(scheduled) / host_count == pytest.approx(cost.mean_sent_bytes, rel=1e-5)
        assert sum(counted) / host_count == pytest.approx(cost.mean_sent_bytes, rel=0.01), (name, size)
        assert max(counted) == pytest.approx(cost.max_sent_bytes, rel=0.01), (name, size)


@needs_tun
@pytest.mark.parametrize("host_count", [3, 4])
def test_every_algorithm_sums_to_the_same_bits_over_links_with_a_delay(host_count):
    with create_delayed_lan(host_count, DELAY_SECONDS, MEGABITS) as hosts:
        require_equal_sums(run_on_hosts(hosts, "tests.network.host_sums:check_sums", COUNTS))


@needs_tun
def test_command_finds_rate_and_delay_of_links_and_writes_the_table_of_a_plan(tmp_path):
    out = tmp_path / "links"
    command = (sys.executable, "-m", "jobs.links", "--workers", "2", "--sizes", "64KiB", "1MiB", "--seconds", "10")
    with create_delayed_lan(3, DELAY_SECONDS, MEGABITS) as hosts, start_spread_cluster(hosts) as ray:
        result = ray.run(*command, "--out", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "between nodes" in result.stdout and (out / "links.html").exists()
    table = pd.read_csv(out / "links.csv")
    assert set(table.algorithm) == {"backend", *list_runnable_algorithms(2)}
    assert (table.nodes == 2).all() and (table.ranks == 2).all()
    large = table[table.bytes == 1 << 20]
    assert (large.counted_bytes / large.sent_bytes).between(0.99, 1.02).all()  # with the headers of Ray's own messages
    assert (large.seconds > DELAY_SECONDS * large.rounds).all()
    assert (large.seconds > 8 * large.sent_bytes / (MEGABITS * 1e6)).all()
    assert len(read_algorithm_times(out / "links.csv")) == len(table) - 2  # without the backend's rows
