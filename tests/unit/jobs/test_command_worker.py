"""Worker of a training command, in a process of its own: it adopts orphans, and ends all of its children."""

import subprocess
import sys

import psutil

from tests.support.ray_cluster import ROOT

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", SECONDS], {})
    os._exit(0)
os.wait()
print('{"examples": 10, "metric": 1.0}', flush=True)
time.sleep(1000)
"""
WORKER = """
import sys
from equipoise.config import TrainConfig
from jobs.user_command.command_run import CommandFolders
from jobs.user_command.command_worker import CommandWorker

worker = CommandWorker()
config = TrainConfig(command=f"{sys.executable} {sys.argv[1]}/daemon.py", target=1.0)
worker.start(config, CommandFolders(sys.argv[1], sys.argv[1]), f"{sys.argv[1]}/record.json")
while not (progress := worker.follow(0.5)).has_ended:
    pass
worker.stop()
print(progress.record.status)
"""


def test_a_daemon_without_the_environment_of_its_run_ends_with_it(tmp_path):
    seconds = f"4{tmp_path.stat().st_ino}"  # tells this sleep from those of others
    (tmp_path / "daemon.py").write_text(DAEMON.replace("SECONDS", repr(seconds)))
    result = subprocess.run([sys.executable, "-c", WORKER, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "reached_target\n", result.stderr
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", seconds]
    ]
    assert (tmp_path / "record.json").exists()
