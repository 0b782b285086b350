"""The demo is stopped: nothing of it stays, however impatient one is. Its whole length is run by tests/end_to_end."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from dashboards import demo_report as story
from equipoise.runs import folder as runs
from equipoise.storage import atomic as store
from jobs.cluster import processes
from jobs.cluster.private_ray import ABOVE, PREFIX
from jobs.cluster.processes import until
from tests.support.ray_cluster import ROOT


def begun(out):
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.demo", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def places():
    return set(ABOVE.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(tmp_path, number):
    before = places()
    demo = begun(tmp_path / "demo")
    assert demo.stdout.readline().startswith("[1/5]")  # Ray is up, and a sweep begins
    until(lambda: len(processes.descendants(demo.pid)) > 8)
    below = {pid: processes.born(pid) for pid in processes.descendants(demo.pid)}
    demo.send_signal(number)
    if number == signal.SIGINT:
        time.sleep(0.5)  # and once more, by who cannot wait
        demo.send_signal(number)
    _, said = demo.communicate(timeout=60)
    until(lambda: not [pid for pid, birth in below.items() if processes.born(pid) == birth], 60)
    if number == signal.SIGKILL:  # nobody is left who could clear up
        for place in places() - before:
            shutil.rmtree(place)
        return
    assert demo.returncode == 143
    assert "nothing is left running" in said
    assert places() == before


def test_a_folder_of_someone_else_is_not_touched(tmp_path):
    (tmp_path / "mine").write_text("dear to me")
    (tmp_path / "story.json").write_text('{"chapters": "of a novel"}')
    demo = begun(tmp_path)
    _, said = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "choose another" in said and len(said.strip().splitlines()) == 1
    assert (tmp_path / "mine").read_text() == "dear to me"


def test_two_do_not_tell_it_in_one_folder(tmp_path):
    store.write_json(tmp_path / "story.json", story.NOTHING)
    with runs.alone(tmp_path):
        demo = begun(tmp_path)
        _, said = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "another command" in said
    assert store.read_json(tmp_path / "story.json") == story.NOTHING
