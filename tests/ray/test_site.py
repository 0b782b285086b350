"""The site on a real Ray, by `equipoise up`: jobs go on without it, and a new site shows them."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from equipoise.errors import EquipoiseError
from jobs.cluster.processes import wait_until
from jobs.site_ray.detached_ray import STATE_FOLDER, find_detached_ray, read_ray_facts
from tests.support.ray_cluster import ROOT
from tests.support.site_process import START_SECONDS, SiteProcess, end_site_ray

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    site = SiteProcess(folder)
    try:
        yield site
    finally:
        site.end(signal.SIGKILL)
        end_site_ray(folder)


def test_a_job_trains_and_its_log_and_record_are_there(site):
    job = site.client.start_job("train", workload="digits", out="first", max_examples=3000)
    assert job["command_line"] == "equipoise train --out runs/first --workload digits --max-examples 3000"
    job = site.client.wait_for_job(job["id"], START_SECONDS)
    assert (job["status"], job["exit_status"], job["failure"]) == ("finished", 0, "")
    assert any("record" in line for line in site.client.read_log(job["id"]))
    assert (site.folder / "runs" / "first" / "record.json").is_file()


def test_a_job_that_fails_tells_the_sentence_of_the_command(site):
    job = site.client.start_job("train", workload="folder", data="nowhere", out="failing")
    job = site.client.wait_for_job(job["id"], START_SECONDS)
    assert (job["status"], job["exit_status"]) == ("failed", 2)
    assert job["failure"].startswith("--data nowhere is not a folder; give ")


def test_a_sweep_goes_on_without_the_site_and_the_next_one_shows_it(site):
    given = {"workers": "1", "batch_size": "16:64", "budget_seconds": 90}
    job = site.client.start_job("sweep", workload="digits", out="sweep", **given)
    trials = site.folder / "runs" / "sweep" / "trials"
    wait_until(lambda: len([*trials.glob("*.json")]) > 1, START_SECONDS, "the first trials")
    before = {path.name for path in trials.glob("*.json")}
    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: len([*trials.glob("*.json")]) > len(before), START_SECONDS, "a trial without the site")
    site.start()
    assert site.client.get_job(job["id"])["status"] == "running"
    job = site.client.wait_for_job(job["id"], START_SECONDS)
    assert (job["status"], job["failure"]) == ("finished", "")
    assert before < {path.name for path in trials.glob("*.json")}
    shown, stored = site.client.get_plan("sweep")["plan"], json.loads((trials.parent / "plan.json").read_text())["plan"]
    assert [shown[name] for name in ("workers", "batch", "lr")] == [stored[name] for name in ("workers", "batch", "lr")]


def test_a_job_survives_a_killed_site_and_is_stopped_and_resumed_by_the_next(site):
    job = site.client.start_job("train", workload="digits", out="long", max_examples=3_000_000, target=2)
    with pytest.raises(EquipoiseError, match=f"open its job {job['id']}") as caught:
        site.client.start_job("sweep", workload="digits", out="long")
    assert caught.value.code == "path-in-use"
    facts = read_ray_facts(site.folder / "runs" / STATE_FOLDER)
    wait_until(lambda: "examples" in site.client.get_job(job["id"])["progress"], START_SECONDS, "the first lap")
    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    site.start()
    assert read_ray_facts(site.folder / "runs" / STATE_FOLDER) == facts and psutil.pid_exists(facts.head_pid)
    assert site.client.get_job(job["id"])["status"] == "running"
    site.client.stop_job(job["id"])
    assert site.client.wait_for_job(job["id"], START_SECONDS)["status"] == "stopped"
    resumed = site.client.resume_job(job["id"])
    wait_until(lambda: "examples" in site.client.get_job(resumed["id"])["progress"], START_SECONDS, "going on")
    assert any("resum" in line for line in site.client.read_log(resumed["id"]))
    assert [entry["out"] for entry in site.client.list_jobs(2)] == ["long", "long"]


def test_down_says_what_it_stops_and_leaves_nothing_running(site):
    state = site.folder / "runs" / STATE_FOLDER
    facts = find_detached_ray(state)
    running = [job["id"] for job in site.client.list_jobs() if job["status"] == "running"]
    assert running and site.end(signal.SIGTERM) == 0
    down = [sys.executable, "-m", "jobs.site_ray.down", "--results", "runs"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(down, cwd=site.folder, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and all(job in done.stdout for job in running), done.stderr
    assert find_detached_ray(state) is None
    wait_until(lambda: not psutil.pid_exists(facts.head_pid), START_SECONDS, "the end of the head")


def test_jobs_run_on_a_ray_that_is_there_already_and_that_outlives_the_site(cluster, tmp_path):
    address = cluster.environment["RAY_API_SERVER_ADDRESS"]
    site = SiteProcess(tmp_path, "--ray", address, environment=cluster.environment)
    try:
        job = site.client.start_job("train", workload="digits", out="first", max_examples=3000)
        job = site.client.wait_for_job(job["id"], START_SECONDS)
        assert (job["status"], job["failure"]) == ("finished", "")
        assert (tmp_path / "runs" / "first" / "record.json").is_file()
        assert find_detached_ray(tmp_path / "runs" / STATE_FOLDER) is None  # it has started none
    finally:
        assert site.end(signal.SIGTERM) == 0
    assert psutil.pid_exists(cluster.head_pid)
