"""A cluster without nodes grows for a plan and shrinks after the run."""

import json
import time

import pytest

from jobs.cluster.processes import find_process_tree, kill_processes, wait_until
from tests.support.plan_documents import write_plan_json
from tests.support.run_observer import read_laps

SUBMIT = "ray job submit --working-dir . --"
PLAN = {"nodes": 1, "workers": 3, "batch": 16, "global_batch": 96, "lr": 0.05}


@pytest.fixture
def plan(local_cluster):
    return write_plan_json(local_cluster.project / "plan.json", PLAN)


def test_nodes_start_for_a_plan_and_end_after_the_run(local_cluster, plan, tmp_path):
    local_cluster.wait_until_empty()
    out, start = tmp_path / "run", time.monotonic()
    local_cluster.journal = out / "laps.jsonl"
    train_command = f"python -m jobs.train --workload digits --plan {plan} --target 2 --max-examples 9600 --out {out}"
    result = local_cluster.run(f"{SUBMIT} {train_command}")
    end = time.monotonic()
    assert result.returncode == 0
    assert "waiting for 3 more slots of 1 CPU: the cluster has 0 and may grow to 4" in result.stdout
    trial = json.loads((out / "record.json").read_text())["config"]
    assert [trial[name] for name in ("workers", "batch_size", "grad_accumulation", "lr")] == [3, 16, 2, 0.05]
    local_cluster.wait_until_empty()
    changes = [(seconds - start, count) for seconds, count in local_cluster.node_counts if seconds > start]
    assert max(count for _, count in changes) == 3
    nodes_started = next(seconds for seconds, count in changes if count == 3)
    first_lap = local_cluster.first_lap_seconds - start
    assert nodes_started < first_lap < end - start < changes[-1][0]
    log = local_cluster.project.parent / "head.log"
    lines = wait_until(lambda: (text := log.read_text().splitlines())[-1] == "no nodes" and text, 30)
    assert "3 nodes" in lines
    print(f"seconds since submitting: nodes started {nodes_started:.0f}, first lap {first_lap:.0f}", end="")
    print(f", end {end - start:.0f}, nodes ended {changes[-1][0]:.0f}")


def test_killed_node_is_replaced_and_the_run_continues(local_cluster, plan, tmp_path):
    out = tmp_path / "run"
    train_command = (
        f"python -m jobs.train --workload digits --plan {plan} --target 2 --max-examples 1000000 --out {out}"
    )
    assert (
        local_cluster.run(f"{SUBMIT.replace(' --', ' --submission-id taken --no-wait --')} {train_command}").returncode
        == 0
    )
    wait_until(lambda: read_laps(out), 120, "a lap")
    # as when a spot machine is reclaimed
    kill_processes(find_process_tree(local_cluster.find_raylets()[-1]))
    start, before = time.monotonic(), len(read_laps(out))
    wait_until(lambda: len(read_laps(out)) > before + 1, 180, "laps of the restarted worker group")
    print(f"seconds from the end of a node to the next lap on another: {time.monotonic() - start:.0f}")
    log = local_cluster.run("ray job logs taken && ray job stop taken").stdout
    assert "waiting for 1 more slot of 1 CPU: the cluster has 2 and may grow to 4" in log
    assert {lap["workers"] for lap in read_laps(out)} == {3}


def test_more_workers_than_the_cluster_can_grow_to_are_refused_at_once(local_cluster, tmp_path):
    result = local_cluster.run(f"{SUBMIT} python -m jobs.train --workload digits --workers 5 --out {tmp_path / 'run'}")
    assert result.returncode == 1
    assert "cannot run 5 workers: the cluster holds at most 4 slots of 1 CPU" in result.stdout
    assert "waiting" not in result.stdout
