"""The demo is stopped: nothing of it stays, however impatient one is. Its whole length is run by tests/end_to_end."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from dashboards.demo_report import EMPTY_STORY_JSON
from equipoise.runs.folder import lock_folder
from equipoise.storage.atomic import read_json, write_json
from jobs.cluster.private_ray import RAY_TEMP_PREFIX, RAY_TEMP_ROOT
from jobs.cluster.processes import find_descendants, read_start_time, terminate_process_groups, wait_until
from tests.support.ray_cluster import ROOT


@pytest.fixture
def start_demo():
    """Start demos; whatever a failed test leaves of them is ended and closed here, not while another test runs."""
    started = []

    def start(out):
        command = [sys.executable, "-m", "jobs.demo", "--out", str(out)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes))
        return started[-1]

    yield start
    terminate_process_groups(started)


def list_ray_folders():
    return set(RAY_TEMP_ROOT.glob(f"{RAY_TEMP_PREFIX}*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(tmp_path, number, start_demo):
    before = list_ray_folders()
    demo = start_demo(tmp_path / "demo")
    assert demo.stdout.readline().startswith("[1/5]")  # Ray is up, and a sweep begins
    wait_until(lambda: len(find_descendants(demo.pid)) > 8)
    below = {pid: read_start_time(pid) for pid in find_descendants(demo.pid)}
    demo.send_signal(number)
    if number == signal.SIGINT:
        time.sleep(0.5)  # and once more, by who cannot wait
        demo.send_signal(number)
    _, said = demo.communicate(timeout=60)
    wait_until(lambda: not [pid for pid, birth in below.items() if read_start_time(pid) == birth], 60)
    if number == signal.SIGKILL:  # nobody is left who could clear up
        for place in list_ray_folders() - before:
            shutil.rmtree(place)
        return
    assert demo.returncode == 143
    assert "nothing is left running" in said
    assert list_ray_folders() == before


def test_a_folder_of_someone_else_is_not_touched(tmp_path, start_demo):
    (tmp_path / "mine").write_text("dear to me")
    (tmp_path / "story.json").write_text('{"chapters": "of a novel"}')
    demo = start_demo(tmp_path)
    _, said = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "choose another" in said and len(said.strip().splitlines()) == 1
    assert (tmp_path / "mine").read_text() == "dear to me"


def test_two_do_not_tell_it_in_one_folder(tmp_path, start_demo):
    write_json(tmp_path / "story.json", EMPTY_STORY_JSON)
    with lock_folder(tmp_path):
        demo = start_demo(tmp_path)
        _, said = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "another command" in said
    assert read_json(tmp_path / "story.json") == EMPTY_STORY_JSON
