"""Faults of links, hosts and disks during a run: no recorded lap is lost, and training resumes."""

import re
import sys
import time
from contextlib import suppress

import pytest

from jobs.cluster.processes import wait_until
from tests.network.hosts import create_lan, find_missing_requirement
from tests.network.spread_workers import start_spread_cluster
from tests.support.ray_cluster import start_cluster
from tests.support.run_observer import last_step, print_duration, print_repeated_laps, read_laps
from tests.support.small_disk import mount_small_disk

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
TRAIN_COMMAND = (sys.executable, "-m", "jobs.train", "--workload", "digits")
ENDLESS_RUN_FLAGS = ("--max-examples", "100000000", "--target", "2", "--eval-every", "20000", "--precision", "fp64")


@pytest.fixture(scope="module")
def cluster():
    with create_lan(4) as hosts, start_spread_cluster(hosts, idle_hosts=1) as cluster:
        yield cluster


def test_run_survives_a_broken_link_and_a_dead_host_and_grows_again(cluster, tmp_path, capsys):
    out = tmp_path / "run"
    _, _, second, third = cluster.hosts
    command = (*TRAIN_COMMAND, *ENDLESS_RUN_FLAGS, "--workers", "1:2", "--batch-size", "32", "--out", str(out))
    process = cluster.start(*command, log=tmp_path / "log")

    def wait_for_progress(workers, seconds=240):
        before = last_step(out)
        wait_until(
            lambda: process.poll() is not None or last_step(out, workers) > before, seconds, f"{workers} workers"
        )
        assert process.poll() is None, (tmp_path / "log").read_text()

    with print_duration("starts with two", capsys):
        wait_for_progress(2)
    with print_duration("link down for 20 s", capsys):
        second.set_link("down")
        time.sleep(20)
        second.set_link("up")
        wait_for_progress(2)
    with print_duration("host dead, continues with one", capsys):
        second.kill()
        wait_for_progress(1)
    with print_duration("host added", capsys):
        cluster.start_nodes(third)
        wait_for_progress(2)
    laps = read_laps(out)
    with print_duration("stopped", capsys):
        process.terminate()
        assert process.wait(60) == 143
    assert [lap["step"] for lap in laps] == sorted({lap["step"] for lap in laps})


def test_dead_head_ends_its_run_and_the_same_command_resumes_it(cluster, tmp_path, capsys):
    out = tmp_path / "run"
    head = cluster.hosts[0]
    command = (*TRAIN_COMMAND, *ENDLESS_RUN_FLAGS, "--workers", "1", "--batch-size", "32", "--out", str(out))
    process = cluster.start(*command, log=tmp_path / "log")
    wait_until(lambda: process.poll() is not None or last_step(out) > 1000, 120, "steps")
    head.kill()
    before = read_laps(out)
    process.wait(10)
    for host in cluster.hosts:  # as `ray up` does first: nodes wait for a head that comes back with its state
        host.kill()
        host.set_link("up")
    with print_duration("head and a node started again", capsys):
        cluster.start_nodes(*cluster.hosts[:2])
    with print_duration("the same command resumes", capsys):
        resumed = cluster.start(*command, log=tmp_path / "resumed")
        wait_until(lambda: resumed.poll() is not None or last_step(out) > before[-1]["step"], 120, "further steps")
    after = read_laps(out)
    assert resumed.poll() is None and "resuming after step" in (tmp_path / "resumed").read_text()
    print_repeated_laps(before, after, capsys)
    resumed.terminate()
    assert resumed.wait(60) == 143


@pytest.fixture
def small_disk(tmp_path):
    with mount_small_disk(tmp_path / "small", "6m") as folder:
        yield folder


def test_full_disk_ends_the_run_with_one_sentence_and_freed_space_lets_it_resume(small_disk, tmp_path, capsys):
    out, filler = small_disk / "run", small_disk / "filler"
    command = (*TRAIN_COMMAND, *ENDLESS_RUN_FLAGS, "--batch-size", "32", "--out", str(out))
    with start_cluster() as ray:
        process = ray.start(*command, log=tmp_path / "log")
        wait_until(lambda: process.poll() is not None or last_step(out) > 500, 120, "steps")
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with print_duration("disk full: run ended", capsys):
            assert process.wait(120) == 1
        log = (tmp_path / "log").read_text()
        assert re.search(r"No space left on device(: '[^'\n]+')?; the same command resumes", log)
        before = last_step(out)
        filler.unlink()
        resumed = ray.start(*command, log=tmp_path / "resumed")
        with print_duration("disk has room: resumes", capsys):
            wait_until(lambda: resumed.poll() is not None or last_step(out) > before, 120, "further steps")
        assert "resuming after step" in (tmp_path / "resumed").read_text()
        resumed.terminate()
        assert resumed.wait(60) == 143
