"""A cluster without nodes grows to a plan and shrinks after it."""

import json
import time

import pytest

from jobs.cluster.processes import find_process_tree, kill_processes, read_start_time, wait_until
from tests.support.run_observer import read_laps

SUBMIT = "ray job submit --working-dir . --"
PLAN = {"nodes": 1, "workers": 3, "batch": 16, "global_batch": 96, "lr": 0.05}


@pytest.fixture
def plan(local):
    path = local.place / "plan.json"
    path.write_text(json.dumps({"schema": 1, "plan": PLAN, "warnings": []}))
    return path


def test_a_plan_brings_its_nodes_and_they_go_with_it(local, plan, tmp_path):
    local.empty()
    out, start = tmp_path / "run", time.monotonic()
    local.journal = out / "laps.jsonl"
    train = f"python -m jobs.train --workload digits --plan {plan} --target 2 --max-examples 9600 --out {out}"
    done = local.run(f"{SUBMIT} {train}")
    end = time.monotonic()
    assert done.returncode == 0
    assert "waiting for 3 more slots of 1 CPU: the cluster has 0 and may grow to 4" in done.stdout
    trial = json.loads((out / "record.json").read_text())["config"]
    assert [trial[name] for name in ("workers", "batch_size", "grad_accumulation", "lr")] == [3, 16, 2, 0.05]
    local.empty()
    since = [(at - start, count) for at, count in local.seen if at > start]
    assert max(count for _, count in since) == 3
    there = next(at for at, count in since if count == 3)
    assert there < local.first_lap - start < end - start < since[-1][0]
    log = local.place.parent / "head.log"
    said = wait_until(lambda: (lines := log.read_text().splitlines())[-1] == "no nodes" and lines, 30)
    assert "3 nodes" in said
    print(f"seconds since submitting: nodes there {there:.0f}, first lap {local.first_lap - start:.0f}", end="")
    print(f", end {end - start:.0f}, nodes gone {since[-1][0]:.0f}")


def test_a_node_that_is_taken_away_is_replaced_and_the_run_goes_on(local, plan, tmp_path):
    out = tmp_path / "run"
    train = f"python -m jobs.train --workload digits --plan {plan} --target 2 --max-examples 1000000 --out {out}"
    assert local.run(f"{SUBMIT.replace(' --', ' --submission-id taken --no-wait --')} {train}").returncode == 0
    wait_until(lambda: read_laps(out), 120, "a lap")
    kill_processes(
        {pid: read_start_time(pid) for pid in find_process_tree(local.raylets()[-1])}
    )  # as when a spot machine goes
    start, before = time.monotonic(), len(read_laps(out))
    wait_until(lambda: len(read_laps(out)) > before + 1, 180, "laps of a group that began again")
    print(f"seconds from a node's end to the next lap, on another: {time.monotonic() - start:.0f}")
    said = local.run("ray job logs taken && ray job stop taken").stdout
    assert "waiting for 1 more slot of 1 CPU: the cluster has 2 and may grow to 4" in said
    assert {lap["workers"] for lap in read_laps(out)} == {3}


def test_what_the_cluster_can_never_hold_is_refused_at_once(local, tmp_path):
    done = local.run(f"{SUBMIT} python -m jobs.train --workload digits --workers 5 --out {tmp_path / 'run'}")
    assert done.returncode == 1
    assert "cannot run 5 workers: the cluster holds at most 4 slots of 1 CPU" in done.stdout
    assert "waiting" not in done.stdout
