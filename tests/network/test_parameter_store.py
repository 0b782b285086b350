"""Stores between hosts send the bytes of their closed forms, and wait for no slow host where they are asynchronous."""

from statistics import median

import pytest

from tests.network.cpu_groups import find_missing_cpu_groups
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan, find_missing_requirement

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
needs_quotas = pytest.mark.skipif(find_missing_cpu_groups() is not None, reason=str(find_missing_cpu_groups()))
MEASURE_RUNS = "tests.network.store_steps:measure_runs"
WIDE = {"workload": "tests.network.wide_model:wide", "batch_size": 4}
DEEP = {"workload": "tests.network.wide_model:deep", "batch_size": 32}
CORES = (0.6, 0.6, 0.2)
STALENESS = 12  # while the slowest host computes a gradient, each of the others computes three


@needs_quotas
def test_asynchronous_workers_on_hosts_of_unequal_speed_compute_more_than_synchronous_ones():
    exchanges = ({"sync": "step"}, {"sync": "server", "servers": 1}, {"sync": f"async:{STALENESS}", "servers": 1})
    runs = [DEEP | exchange for exchange in exchanges]
    with create_lan(len(CORES)) as hosts:
        for host, cores in zip(hosts, CORES, strict=True):
            host.limit_cpu(cores)
        rows = run_on_hosts(hosts, MEASURE_RUNS, [*runs, *runs, *runs], 30)[0]
    step, server, asynchronous = (median(row["examples_per_second"] for row in rows[place::3]) for place in range(3))
    assert asynchronous / max(step, server) >= 1.8
