"""Every block of docs/guides/cluster.md works unchanged on the cluster of cluster.local.yaml."""

import json
import re
from pathlib import Path

import pytest

from jobs.cluster.processes import wait_until
from tests.autoscaling.local_cluster import IGNORED_FILES
from tests.support.doc_fences import read_fences
from tests.support.listening_ports import find_public_sockets
from tests.support.plan_documents import write_plan_json
from tests.support.ray_cluster import ROOT
from tests.support.run_observer import read_laps

FENCES = read_fences(ROOT / "docs" / "guides" / "cluster.md")
TOKEN_BLOCK, CLOUD_BLOCK, LOCAL_BLOCK = (FENCES[name].text for name in ("token", "cloud", "local"))
SWEEP_BLOCK, TRAIN_BLOCK, STATUS_BLOCK, STOP_BLOCK = (
    FENCES[name].text for name in ("sweep", "train", "status", "stop")
)


def find_driver(local_cluster):
    """Return the /proc folder of the training command that is running, or None."""
    for pid in local_cluster.find_processes():
        folder = Path(f"/proc/{pid}")
        if b"python\0-m\0jobs.train" in (folder / "cmdline").read_bytes():
            return folder
    return None


def test_token_file_is_readable_only_by_its_owner(local_cluster, tmp_path):
    result = local_cluster.run(TOKEN_BLOCK, HOME=str(tmp_path))
    assert result.returncode == 0
    [token] = (tmp_path / ".ray").iterdir()
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text()) > 30
    assert token.read_text() not in result.stdout


def test_cloud_cluster_file_passes_validation(local_cluster):
    check, up, _ = CLOUD_BLOCK.splitlines()
    assert up == "ray up cluster.yaml"
    assert local_cluster.run(check).returncode == 0


def test_make_target_starts_the_local_cluster():
    [target] = re.match(r"make (\w+)", LOCAL_BLOCK).groups()
    assert f"\n{target}: .venv/ready" in (ROOT / "Makefile").read_text()
    assert "\n\t$(BIN)/python -m jobs.cluster.local cluster.local.yaml\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("mode", ["none", "another"])
def test_missing_or_wrong_token_is_refused(local_cluster, tmp_path, mode):
    variables = {"HOME": str(tmp_path)}
    if mode == "none":
        variables["RAY_AUTH_MODE"] = "disabled"
    else:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("x" * 43)
    result = local_cluster.run(STATUS_BLOCK.splitlines()[-1], **variables)
    assert result.returncode == 1
    # the CLI's texts for 401 and 403
    assert {"none": "Unauthorized: Missing", "another": "Forbidden: Invalid"}[mode] in result.stdout


def test_sweep_starts_no_more_nodes_than_it_times_workers(local_cluster):
    local_cluster.wait_until_empty()
    local_cluster.node_counts.clear()
    result = local_cluster.run(SWEEP_BLOCK)
    assert result.returncode in (0, 1)  # 1: on a busy machine the confirmation run takes longer than predicted
    assert "waiting for 2 more slots of 1 CPU: the cluster has 0 and may grow to 4" in result.stdout
    for attempt in (2, 3):  # on a busy machine the time budget may end too soon: the same command resumes
        if not (local_cluster.project / "runs" / "sweep" / "plan.json").exists():
            assert local_cluster.run(SWEEP_BLOCK.replace("sweep-1", f"sweep-{attempt}")).returncode in (0, 1)
    assert max(count for _, count in local_cluster.node_counts) == 2
    assert json.loads((local_cluster.project / "runs" / "sweep" / "plan.json").read_text())["plan"]


def test_repeated_submission_id_is_refused(local_cluster):
    result = local_cluster.run(SWEEP_BLOCK)
    assert result.returncode == 1
    assert "sweep-1 already exists" in result.stdout


def read_or_write_plan(local_cluster):
    """Return the plan of the sweep; if this test runs alone, write a plausible one first."""
    path = local_cluster.project / "runs" / "sweep" / "plan.json"
    if not path.exists():
        path.parent.mkdir(parents=True)
        plan = {"nodes": 1, "workers": 2, "batch": 16, "global_batch": 32, "lr": 0.05}
        write_plan_json(path, plan)
    return json.loads(path.read_text())["plan"]


def test_training_with_the_plan_is_inspected_stopped_and_resumed(local_cluster):
    out = local_cluster.project / "runs" / "digits"
    plan = read_or_write_plan(local_cluster)
    assert local_cluster.run(TRAIN_BLOCK).returncode == 0
    wait_until(lambda: local_cluster.count_nodes() >= 0 and len(read_laps(out)) >= 2, 120)
    driver = find_driver(local_cluster)
    assert b"OMP_NUM_THREADS=1\0" in (driver / "environ").read_bytes()
    uploaded = (driver / "cwd").readlink()
    assert (uploaded / "jobs" / "train.py").exists() and not any((uploaded / name).exists() for name in IGNORED_FILES)
    assert_nothing_is_exposed(local_cluster)
    status = local_cluster.run(STATUS_BLOCK)
    assert status.returncode == 0
    for text in ("Status for job 'digits-1': RUNNING", "step ", "'for': 'the shop'"):
        assert text in status.stdout
    stop = local_cluster.run(STOP_BLOCK)
    assert stop.returncode == 0
    assert "Job 'digits-1' was stopped" in stop.stdout
    log = wait_until(
        lambda: (text := local_cluster.run("ray job logs digits-2").stdout) and "step " in text and text, 120
    )
    assert int(re.search(r"resuming after step (\d+)", log)[1]) > 0
    trial = json.loads((out / "trial.json").read_text())
    assert [trial[name] for name in ("workers", "batch_size", "lr")] == [
        plan[name] for name in ("workers", "batch", "lr")
    ]
    assert local_cluster.run("ray job stop digits-2").returncode == 0


def assert_nothing_is_exposed(local_cluster):
    """Assert that only one rendezvous of torch listens beyond loopback, and that the token is in no process or file."""
    token = local_cluster.token.strip().encode()
    sockets = find_public_sockets(local_cluster.find_processes())
    # torch has no option to let the rendezvous of training workers listen on loopback only
    assert len(sockets) <= 1 and all("RayTrainWorker" in socket for socket in sockets), sockets
    for pid in local_cluster.find_processes():
        folder = Path(f"/proc/{pid}")
        assert not folder.exists() or token not in (folder / "cmdline").read_bytes()
        match = re.search(rb"--temp-dir=(/tmp/\S+?)\0", (folder / "cmdline").read_bytes()) if folder.exists() else None
        for log in Path(match[1].decode()).glob("session_latest/logs/**/*") if match else []:
            assert not log.is_file() or token not in log.read_bytes(), log
    for file in (local_cluster.project / "runs").rglob("*"):
        assert not file.is_file() or token not in file.read_bytes(), file
