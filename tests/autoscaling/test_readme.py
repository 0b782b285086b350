"""The README's section on many machines, block by block as it stands, on the cluster of cluster.local.yaml."""

import json
import re
from pathlib import Path

import pytest

from jobs.cluster.processes import wait_until
from tests.autoscaling.local_cluster import HIDDEN
from tests.support.listening_ports import find_public_sockets
from tests.support.ray_cluster import ROOT
from tests.support.run_observer import read_laps

SECTION = re.search(r"## Many machines\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)[1]
TOKEN, CLOUD, LOCAL, SWEEP, TRAIN, LOOK, STOP = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)


def driver(local):
    """The process of the training under way."""
    for pid in local.processes():
        place = Path(f"/proc/{pid}")
        if b"python\0-m\0jobs.train" in (place / "cmdline").read_bytes():
            return place
    return None


def test_the_token_is_made_for_its_owner_alone(local, tmp_path):
    done = local.run(TOKEN, HOME=str(tmp_path))
    assert done.returncode == 0
    [token] = (tmp_path / ".ray").iterdir()
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text()) > 30
    assert token.read_text() not in done.stdout


def test_what_needs_a_cloud_is_held_against_its_descriptions(local):
    check, up, _ = CLOUD.splitlines()
    assert up == "ray up cluster.yaml"
    assert local.run(check).returncode == 0


def test_the_cluster_here_is_what_make_starts():
    [target] = re.match(r"make (\w+)", LOCAL).groups()
    assert f"\n{target}: .venv/ready" in (ROOT / "Makefile").read_text()
    assert "\n\t$(BIN)/python -m jobs.cluster.local cluster.local.yaml\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("mode", ["none", "another"])
def test_who_does_not_know_the_token_is_refused(local, tmp_path, mode):
    variables = {"HOME": str(tmp_path)}
    if mode == "none":
        variables["RAY_AUTH_MODE"] = "disabled"
    else:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("x" * 43)
    done = local.run(LOOK.splitlines()[-1], **variables)
    assert done.returncode == 1
    # as the CLI says 401 and 403
    assert {"none": "Unauthorized: Missing", "another": "Forbidden: Invalid"}[mode] in done.stdout


def test_a_sweep_brings_no_more_nodes_than_it_times_workers(local):
    local.empty()
    local.seen.clear()
    done = local.run(SWEEP)
    assert done.returncode in (0, 1)  # 1: the confirming run took longer than predicted, on a busy machine
    assert "waiting for 2 more slots of 1 CPU: the cluster has 0 and may grow to 4" in done.stdout
    for again in (2, 3):  # on a busy machine its time is over too soon: the same command goes on
        if not (local.place / "runs" / "sweep" / "plan.json").exists():
            assert local.run(SWEEP.replace("sweep-1", f"sweep-{again}")).returncode in (0, 1)
    assert max(count for _, count in local.seen) == 2
    assert json.loads((local.place / "runs" / "sweep" / "plan.json").read_text())["plan"]


def test_the_same_submission_is_refused(local):
    done = local.run(SWEEP)
    assert done.returncode == 1
    assert "sweep-1 already exists" in done.stdout


def planned(local):
    """The sweep's plan, or one that it might have come to where this test runs by itself."""
    path = local.place / "runs" / "sweep" / "plan.json"
    if not path.exists():
        path.parent.mkdir(parents=True)
        plan = {"nodes": 1, "workers": 2, "batch": 16, "global_batch": 32, "lr": 0.05}
        path.write_text(json.dumps({"schema": 1, "plan": plan, "warnings": []}))
    return json.loads(path.read_text())["plan"]


def test_a_plan_trains_is_looked_at_stopped_and_goes_on(local):
    out = local.place / "runs" / "digits"
    plan = planned(local)
    assert local.run(TRAIN).returncode == 0
    wait_until(lambda: local.nodes() >= 0 and len(read_laps(out)) >= 2, 120)
    running = driver(local)
    assert b"OMP_NUM_THREADS=1\0" in (running / "environ").read_bytes()
    brought = (running / "cwd").readlink()
    assert (brought / "jobs" / "train.py").exists() and not any((brought / name).exists() for name in HIDDEN)
    kept_to_itself(local)
    looked = local.run(LOOK)
    assert looked.returncode == 0
    for text in ("Status for job 'digits-1': RUNNING", "step ", "'for': 'the shop'"):
        assert text in looked.stdout
    stopped = local.run(STOP)
    assert stopped.returncode == 0
    assert "Job 'digits-1' was stopped" in stopped.stdout
    said = wait_until(lambda: (found := local.run("ray job logs digits-2").stdout) and "step " in found and found, 120)
    assert int(re.search(r"resuming after step (\d+)", said)[1]) > 0
    trial = json.loads((out / "trial.json").read_text())
    assert [trial[name] for name in ("workers", "batch_size", "lr")] == [
        plan[name] for name in ("workers", "batch", "lr")
    ]
    assert local.run("ray job stop digits-2").returncode == 0


def kept_to_itself(local):
    """Whatever runs listens to this machine alone, and no process shows the token, no log has it."""
    token = local.token.strip().encode()
    beyond = find_public_sockets(
        local.processes()
    )  # where workers of a group find each other: torch has no option for it
    assert len(beyond) <= 1 and all("RayTrainWorker" in one for one in beyond), beyond
    for pid in local.processes():
        place = Path(f"/proc/{pid}")
        assert not place.exists() or token not in (place / "cmdline").read_bytes()
        found = re.search(rb"--temp-dir=(/tmp/\S+?)\0", (place / "cmdline").read_bytes()) if place.exists() else None
        for log in Path(found[1].decode()).glob("session_latest/logs/**/*") if found else []:
            assert not log.is_file() or token not in log.read_bytes(), log
    for file in (local.place / "runs").rglob("*"):
        assert not file.is_file() or token not in file.read_bytes(), file
