"""What the desk makes of what Ray says about a job, and of a Ray that says nothing."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from equipoise.errors import EquipoiseError
from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.jobs_on_ray.cluster_view import ClusterUse
from services.site.jobs_on_ray.job_desk import SUBMIT_SECONDS, JobDesk, build_job_environment, make_identifier
from services.site.jobs_on_ray.job_pages import parse_page_number
from services.site.jobs_on_ray.job_store import SubmittedJob
from services.site.jobs_on_ray.job_summary import RECENT_JOBS, list_home_lines

UNREACHABLE = RayDashboard("http://127.0.0.1:1")


@pytest.fixture
def desk(tmp_path):
    return JobDesk(UNREACHABLE, tmp_path, tmp_path / ".site")


@pytest.fixture
def job(desk):
    job = SubmittedJob(
        id="check-a-1",
        command="check",
        arguments=("--out", "/r/a"),
        out="/r/a",
        folder="/",
        started_by="Ada",
        submitted=time.time(),
        status="running",
    )
    desk.store.claim_job(job, "a")
    return job


@pytest.mark.parametrize(
    ("command", "reply", "status"),
    [
        ("check", {"status": "SUCCEEDED", "driver_exit_code": 0}, "finished"),
        ("check", {"status": "FAILED", "driver_exit_code": 3}, "finished"),
        ("check", {"status": "FAILED", "driver_exit_code": 2}, "failed"),
        ("train", {"status": "FAILED", "driver_exit_code": 3}, "failed"),
        ("train", {"status": "FAILED", "driver_exit_code": 143}, "stopped"),
        ("train", {"status": "STOPPED", "driver_exit_code": None}, "stopped"),
        ("train", {"status": "PENDING"}, "waiting"),
    ],
)
def test_the_status_of_ray_becomes_that_of_the_job(desk, job, command, reply, status):
    desk.note_status(replace(job, command=command), reply)
    noted = desk.store.find_job(job.id)
    assert (noted.status, noted.exit_status) == (status, reply.get("driver_exit_code"))
    assert (noted.ended is None) == (status == "waiting")


def test_a_job_that_is_asked_to_stop_is_stopping_until_it_has_ended(desk, job):
    desk.store.mark_stopping(job.id)
    desk.note_status(desk.store.find_job(job.id), {"status": "RUNNING"})
    assert desk.store.find_job(job.id).status == "stopping"
    desk.note_status(desk.store.find_job(job.id), {"status": "STOPPED"})
    assert desk.store.find_job(job.id).status == "stopped"


def test_a_job_that_ray_does_not_know_is_lost_but_one_being_submitted_gets_time(desk, job):
    fresh = replace(job, id="check-a-2", out="/r/b", status="submitting")
    desk.store.claim_job(fresh, "b")
    for submitting in (job, fresh):
        desk.note_status(submitting, None)
    assert [desk.store.find_job(each.id).status for each in (job, fresh)] == ["lost", "submitting"]
    desk.note_status(replace(fresh, submitted=time.time() - SUBMIT_SECONDS - 1), None)
    assert desk.store.find_job(fresh.id).status == "lost"


def test_a_ray_that_does_not_answer_changes_nothing(desk, job):
    desk.refresh_jobs(at_once=True)
    assert desk.store.find_job(job.id).status == "running"
    with pytest.raises(EquipoiseError, match="cannot reach Ray"):
        desk.start_job("train", ["--out", "/r/b"], "Ada")
    assert desk.store.list_jobs(1)[0].status == "submitting"


def test_while_ray_keeps_one_thread_waiting_the_others_show_what_is_known(job, tmp_path):
    asked, may_answer = threading.Event(), threading.Event()

    class SlowRay(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.set()
            may_answer.wait(60)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'[{"submission_id": "check-a-1", "status": "SUCCEEDED"}]')

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), SlowRay) as server, ThreadPoolExecutor(2) as pool:
        pool.submit(server.serve_forever)
        desk = JobDesk(RayDashboard(f"http://127.0.0.1:{server.server_port}"), tmp_path, tmp_path / ".site")
        first = pool.submit(desk.find_job, job.id)
        assert asked.wait(60)
        assert desk.find_job(job.id).status == "running"
        may_answer.set()
        assert first.result(60).status == "finished"
        server.shutdown()


def test_the_home_page_lists_a_job_that_runs_longer_than_a_hundred_others(desk, job):
    for number in range(RECENT_JOBS + 1):
        other = replace(job, id=f"check-{number}", out=f"/r/{number}", submitted=job.submitted + 1 + number)
        desk.store.claim_job(other, "")
        desk.store.set_status(other, "finished", 1.0, 0)
    use = ClusterUse(nodes=1, slots=1, busy_slots=1, unit="CPU")
    assert [item.href for item in list_home_lines(desk, use).running] == [f"/jobs/{job.id}"]


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("0", 1), ("x", 1), ("\u0663", 1), ("0" * 9 + "9" * 30, 1)])
def test_a_page_number_that_is_none_leads_to_the_first_page(text, number):
    assert parse_page_number(text) == number


def test_jobs_are_lost_once_the_sites_own_ray_is_gone(desk, job):
    desk.is_own_ray = True
    desk.refresh_jobs(at_once=True)
    assert desk.store.find_job(job.id).status == "lost"


def test_a_job_that_has_ended_is_not_stopped_and_one_without_ray_not_started(desk, job, tmp_path):
    desk.store.set_status(job, "finished", 1.0, 0)
    with pytest.raises(EquipoiseError, match="it has ended already"):
        desk.stop_job(job.id)
    with pytest.raises(EquipoiseError, match="this site runs without Ray"):
        JobDesk(None, tmp_path, tmp_path / ".site").start_job("train", [], "Ada")


def test_a_job_finds_this_project_first_and_prints_at_once():
    environment = build_job_environment({"PYTHONPATH": "/mine"})
    assert environment["PYTHONPATH"].endswith(":/mine") and environment["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize(
    ("text", "identifier"), [("Run 1/ä;", "run-1"), ("", "job"), ("-", "job"), ("a" * 99, "a" * 40)]
)
def test_an_identifier_has_letters_digits_and_dashes(text, identifier):
    assert make_identifier(text) == identifier
