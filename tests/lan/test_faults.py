"""What goes wrong between machines, and what becomes of a run: nothing recorded is lost, and it goes on by itself."""

import json
import sys
import time
from contextlib import contextmanager

import pytest

from equipoise.record import Record
from jobs.processes import until
from tests.lan.hosts import lan, possible
from tests.lan.spread import spread

pytestmark = pytest.mark.skipif(possible() is not None, reason=str(possible()))
ENDLESS = ("--examples", "100000000", "--target", "2", "--evaluate", "20000", "--precision", "fp64")


def laps(out):
    """Laps that whoever looks on can see: whole lines."""
    journal = out / "laps.jsonl"
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def steps(out, workers=None):
    """The last step of a lap that so many workers took."""
    found = [lap["step"] for lap in laps(out) if workers in (None, lap["workers"])]
    return found[-1] if found else 0


@contextmanager
def told(what, capsys):
    """How long it takes, said aloud: the figures of the table of faults."""
    start = time.monotonic()
    yield
    with capsys.disabled():
        print(f"\n  {what}: {time.monotonic() - start:.0f} s")


@pytest.fixture(scope="module")
def cluster():
    with lan(4) as hosts, spread(hosts, later=1) as made:
        yield made


def test_a_run_outlives_a_link_and_a_host_and_grows_again(cluster, tmp_path, capsys):
    out = tmp_path / "run"
    _head, first, second, third = cluster.hosts
    asked = (sys.executable, "-m", "jobs.train", "--workload", "digits", *ENDLESS, "--out", str(out))
    running = cluster.start(*asked, "--workers", "1:2", "--batch", "32", log=tmp_path / "log")

    def goes_on(workers, seconds=240):
        before = steps(out)
        until(lambda: running.poll() is not None or steps(out, workers) > before, seconds, f"{workers} workers")
        assert running.poll() is None, (tmp_path / "log").read_text()

    with told("begins with two", capsys):
        goes_on(2)
    with told("link down for 20 s", capsys):
        second.link("down")
        time.sleep(20)
        second.link("up")
        goes_on(2)
    with told("host dead, goes on with one", capsys):
        second.dies()
        goes_on(1)
    with told("host added", capsys):
        cluster.nodes(third)
        goes_on(2)
    kept = laps(out)
    with told("stopped", capsys):
        running.terminate()
        assert running.wait(60) == 143
    assert [lap["step"] for lap in kept] == sorted({lap["step"] for lap in kept})
