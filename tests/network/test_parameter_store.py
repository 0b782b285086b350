"""Stores between hosts send the bytes of their closed forms, and wait for no slow host where they are asynchronous."""

from statistics import mean, median

import pytest

from equipoise.config import TrainConfig
from equipoise.parameter_store.partition import list_part_bytes
from equipoise.planning.parameter_servers.server_cost import find_part_shares, server_cost
from tests.network.cpu_groups import find_missing_cpu_groups
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan, find_missing_requirement
from tests.network.wide_model import wide, wider

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
needs_quotas = pytest.mark.skipif(find_missing_cpu_groups() is not None, reason=str(find_missing_cpu_groups()))
MEASURE_RUNS = "tests.network.store_steps:measure_runs"
WIDE = {"workload": "tests.network.wide_model:wide", "batch_size": 4}
SERVER_COUNTS = (1, 2, 3)
REPEATS = 3  # of which the least bytes count: packets that are sent again on a busy machine only add to them
SLOW_MBIT = 200.0
DEEP = {"workload": "tests.network.wide_model:deep", "batch_size": 32}
CORES = (0.6, 0.6, 0.2)
STALENESS = 6  # while the slowest host computes a gradient, each of the others computes three


def list_key_bytes(build_workload):
    """Return the bytes of each parameter of a workload's model."""
    model = build_workload(TrainConfig(workload="digits")).model()
    return {name: parameter.nbytes for name, parameter in model.named_parameters()}


def test_servers_send_the_bytes_of_their_closed_form():
    hosts, key_bytes = 3, list_key_bytes(wide)
    size = sum(key_bytes.values())
    with create_lan(hosts) as lan:
        runs = [WIDE | {"sync": "server", "servers": servers} for servers in (*SERVER_COUNTS, 0)]
        figures = [*zip(*run_on_hosts(lan, MEASURE_RUNS, runs * REPEATS, 5), strict=True)]
    for place, servers in enumerate((*SERVER_COUNTS, hosts)):
        parts = list_part_bytes(key_bytes, servers) + [0] * (hosts - servers)
        closed_forms = [size - part + (hosts - 1) * part for part in parts]  # pushes to others, replies to their pulls
        rows = figures[place :: len(runs)]
        counted = [min(row[host]["counted_bytes"] for row in rows) for host in range(hosts)]
        assert counted == pytest.approx(closed_forms, rel=0.01), servers
        assert mean(counted) == pytest.approx(2 * (hosts - 1) / hosts * size, rel=0.01)
        assert rows[0][0]["recorded_bytes"] == max(closed_forms)


@pytest.mark.parametrize("servers", [1, 0])
def test_two_levels_save_what_their_closed_form_says_between_hosts_with_slow_links(servers):
    nodes, group, key_bytes = 2, 2, [*list_key_bytes(wider).values()]
    flat = {"workload": "tests.network.wide_model:wider", "batch_size": 4, "sync": "server", "servers": servers}
    with create_lan(nodes, SLOW_MBIT) as hosts:
        workers = [host for host in hosts for _ in range(group)]
        rows = run_on_hosts(workers, MEASURE_RUNS, [flat, flat | {"all_reduce": "two-level"}] * 2, 3)[0]
    flat_seconds, level_seconds = (mean(row["seconds"] for row in rows[place::2]) for place in range(2))
    flat_link, level_link = (
        server_cost(
            nodes * group,
            servers,
            sum(key_bytes),
            nodes,
            part_shares=find_part_shares(key_bytes, servers or count),
            is_two_level=count == nodes,
        ).between.seconds(0, 8 / (1e6 * SLOW_MBIT))
        for count in (nodes * group, nodes)
    )
    print(f"{flat_seconds:.3f} s in a flat store, {level_seconds:.3f} s in two levels")
    print(f"{flat_link:.3f} s and {level_link:.3f} s by the closed forms of the links")
    assert flat_seconds / level_seconds == pytest.approx(flat_link / level_link, rel=0.15)
    assert flat_seconds - level_seconds == pytest.approx(flat_link - level_link, rel=0.15)


@needs_quotas
def test_asynchronous_workers_on_hosts_of_unequal_speed_compute_more_than_synchronous_ones():
    exchanges = ({"sync": "step"}, {"sync": "server", "servers": 1}, {"sync": f"async:{STALENESS}", "servers": 1})
    runs = [DEEP | exchange for exchange in exchanges]
    with create_lan(len(CORES)) as hosts:
        for host, cores in zip(hosts, CORES, strict=True):
            host.limit_cpu(cores)
        by_host = run_on_hosts(hosts, MEASURE_RUNS, runs * 3, 30)
    step, server, asynchronous = (median_rate(by_host[0][place::3]) for place in range(3))
    print(f"{step:.0f} examples/s by step, {server:.0f} by server, {asynchronous:.0f} by async:{STALENESS}")
    assert asynchronous / max(step, server) >= 1.8
    ratios = [
        max(row["counted_bytes"] for row in rows) / rows[0]["recorded_bytes"]
        for rows in [*zip(*by_host, strict=True)][2::3]
    ]
    assert min(ratios) == pytest.approx(1, rel=0.01)


def median_rate(rows):
    """Return the examples per second of all workers, in the median of runs."""
    return median(row["examples_per_second"] for row in rows)
