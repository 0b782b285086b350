"""What goes wrong between machines, and what becomes of a run: nothing recorded is lost, and it goes on by itself."""

import sys
import time
from contextlib import suppress

import pytest

from jobs.cluster.processes import wait_until
from tests.network.hosts import lan, possible
from tests.network.hosts import print_duration as commanded
from tests.network.spread_workers import spread
from tests.support.ray_cluster import start_cluster
from tests.support.run_observer import last_step, print_duration, print_repeated_laps, read_laps

pytestmark = pytest.mark.skipif(possible() is not None, reason=str(possible()))
TRAIN = (sys.executable, "-m", "jobs.train", "--workload", "digits")
ENDLESS = ("--max-examples", "100000000", "--target", "2", "--eval-every", "20000", "--precision", "fp64")


@pytest.fixture(scope="module")
def cluster():
    with lan(4) as hosts, spread(hosts, later=1) as made:
        yield made


def test_a_run_outlives_a_link_and_a_host_and_grows_again(cluster, tmp_path, capsys):
    out = tmp_path / "run"
    _head, _first, second, third = cluster.hosts
    asked = (*TRAIN, *ENDLESS, "--workers", "1:2", "--batch-size", "32", "--out", str(out))
    start_cluster = cluster.start(*asked, log=tmp_path / "log")

    def goes_on(workers, seconds=240):
        before = last_step(out)
        wait_until(
            lambda: start_cluster.poll() is not None or last_step(out, workers) > before, seconds, f"{workers} workers"
        )
        assert start_cluster.poll() is None, (tmp_path / "log").read_text()

    with print_duration("begins with two", capsys):
        goes_on(2)
    with print_duration("link down for 20 s", capsys):
        second.link("down")
        time.sleep(20)
        second.link("up")
        goes_on(2)
    with print_duration("host dead, goes on with one", capsys):
        second.dies()
        goes_on(1)
    with print_duration("host added", capsys):
        cluster.nodes(third)
        goes_on(2)
    kept = read_laps(out)
    with print_duration("stopped", capsys):
        start_cluster.terminate()
        assert start_cluster.wait(60) == 143
    assert [lap["step"] for lap in kept] == sorted({lap["step"] for lap in kept})


def test_a_head_that_dies_ends_what_it_drove_and_the_same_command_goes_on(cluster, tmp_path, capsys):
    out = tmp_path / "run"
    head = cluster.hosts[0]
    asked = (*TRAIN, *ENDLESS, "--workers", "1", "--batch-size", "32", "--out", str(out))
    start_cluster = cluster.start(*asked, log=tmp_path / "log")
    wait_until(lambda: start_cluster.poll() is not None or last_step(out) > 1000, 120, "steps")
    head.dies()
    before = read_laps(out)
    start_cluster.wait(10)
    for host in cluster.hosts:  # what `ray up` does first: nodes wait for a head that comes back with what it knew
        host.dies()
        host.link("up")
    with print_duration("head and a node started again", capsys):
        cluster.nodes(*cluster.hosts[:2])
    with print_duration("the same command goes on", capsys):
        again = cluster.start(*asked, log=tmp_path / "again")
        wait_until(lambda: again.poll() is not None or last_step(out) > before[-1]["step"], 120, "further steps")
    found = read_laps(out)
    assert again.poll() is None and "resuming after step" in (tmp_path / "again").read_text()
    print_repeated_laps(before, found, capsys)
    again.terminate()
    assert again.wait(60) == 143


@pytest.fixture
def small_disk(tmp_path):
    """Room for a few checkpoints."""
    place = tmp_path / "small"
    place.mkdir()
    commanded("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place))
    yield place
    commanded("umount", "--lazy", str(place))


def test_a_full_disk_ends_the_run_in_a_sentence_and_with_room_it_goes_on(small_disk, tmp_path, capsys):
    out, filling = small_disk / "run", small_disk / "filling"
    asked = (*TRAIN, *ENDLESS, "--batch-size", "32", "--out", str(out))
    with start_cluster() as ray:
        begun = ray.start(*asked, log=tmp_path / "log")
        wait_until(lambda: begun.poll() is not None or last_step(out) > 500, 120, "steps")
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with print_duration("disk full: given up", capsys):
            assert begun.wait(120) == 1
        assert "No space left on device; the same command resumes" in (tmp_path / "log").read_text()
        before = last_step(out)
        filling.unlink()
        again = ray.start(*asked, log=tmp_path / "again")
        with print_duration("disk has room: goes on", capsys):
            wait_until(lambda: again.poll() is not None or last_step(out) > before, 120, "further steps")
        assert "resuming after step" in (tmp_path / "again").read_text()
        again.terminate()
        assert again.wait(60) == 143
