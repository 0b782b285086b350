"""Stopping the demo leaves nothing running. The whole demo runs in tests/end_to_end."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dashboards.demo_story import DemoStory
from equipoise.errors import CommandFailed
from equipoise.runs.folder import lock_folder
from jobs.cluster.private_ray import RAY_TEMP_PREFIX, RAY_TEMP_ROOT
from jobs.cluster.processes import find_descendants, is_alive, terminate_process_groups, wait_until
from jobs.demo.demo_state import DemoState
from jobs.demo.traffic import SimulatedClients
from tests.support.ray_cluster import PATIENCE_SECONDS, ROOT, list_descendants


@pytest.fixture
def start_demo():
    """Return a function that starts a demo; demos that a failed test leaves running are terminated afterwards."""
    processes = []

    def start(out):
        command = [sys.executable, "-m", "jobs.demo", "--out", str(out)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes))
        return processes[-1]

    yield start
    terminate_process_groups(processes)


def find_ray_folder(demo):
    """Return the folder of the Ray that a demo has started; others may run beside it."""
    pattern = rf"--temp-dir=({RAY_TEMP_ROOT / RAY_TEMP_PREFIX}\S+)"
    (folder,) = {match[1] for command in list_descendants(demo.pid).values() if (match := re.search(pattern, command))}
    return Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.thorough)])
def test_stopped_demo_leaves_nothing_running(tmp_path, signal_number, start_demo):
    demo = start_demo(tmp_path / "demo")
    assert demo.stdout.readline().startswith("[1/5]")  # Ray is running, and the sweep begins
    wait_until(lambda: len(find_descendants(demo.pid)) > 8)
    descendants, ray_folder = find_descendants(demo.pid), find_ray_folder(demo)
    demo.send_signal(signal_number)
    if signal_number == signal.SIGINT:
        time.sleep(0.5)  # then again, as an impatient user does
        demo.send_signal(signal_number)
    _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: not any(map(is_alive, descendants)), PATIENCE_SECONDS)
    if signal_number == signal.SIGKILL:  # a killed demo cannot remove its folder
        shutil.rmtree(ray_folder)
        return
    assert demo.returncode == 143
    assert "nothing is left running" in stderr
    assert not ray_folder.exists()


def test_foreign_folder_is_refused_and_unchanged(tmp_path, start_demo):
    (tmp_path / "mine").write_text("dear to me")
    (tmp_path / "story.json").write_text('{"chapters": "of a novel"}')
    demo = start_demo(tmp_path)
    _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 2
    assert "choose another" in stderr and len(stderr.strip().splitlines()) == 1
    assert (tmp_path / "mine").read_text() == "dear to me"


def test_second_demo_in_the_same_folder_is_refused(tmp_path, start_demo):
    DemoStory.empty().write(tmp_path)
    with lock_folder(tmp_path):
        demo = start_demo(tmp_path)
        _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 2
    assert "another command" in stderr
    assert DemoStory.read(tmp_path) == DemoStory.empty()


@pytest.mark.parametrize("status", [1, 2])
def test_a_job_without_its_result_fails_the_demo_with_the_last_words_of_the_job(cluster, tmp_path, status):
    """Python exits with 1 after any error, as a sweep does whose plan is refuted."""
    (tmp_path / "logs").mkdir()
    state = DemoState(tmp_path, cluster, SimulatedClients(port=1))
    arguments = ("publish", "--run", tmp_path / "none", "--out", tmp_path / "bundle")
    with pytest.raises(
        CommandFailed, match=r"jobs\.publish exited with status 2; see .*publish\.log, which ends:\n.*none"
    ):
        state.run_job(*arguments, ok_statuses=(0, status), result=tmp_path / "bundle" / "manifest.json")
