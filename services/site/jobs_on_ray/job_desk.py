"""Desk that submits jobs to Ray, follows and stops them; what it knows lies in the store, so a new site goes on."""

import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jobs
from equipoise.errors import EquipoiseError
from jobs.cli.main import COMMAND_MODULES
from jobs.site_ray.detached_ray import find_detached_ray
from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.jobs_on_ray.form_arguments import read_out_folder
from services.site.jobs_on_ray.job_log import TAIL_BYTES, LogTail, read_log_tail
from services.site.jobs_on_ray.job_store import JobStore, SubmittedJob

ASK_SECONDS = 10.0  # until Ray is given up for now
REFRESH_SECONDS = 1.5  # for so long, what Ray said is shown to all who look
SUBMIT_SECONDS = 60.0  # after which a job that Ray does not know was never submitted: the site was killed before
STATUS_BY_RAY = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
    "STOPPED": "stopped",
}
FINISHED_STATUSES = {"check": (3, 4), "adapt": (3, 4)}
"""exit statuses beside 0 with which a command has done its work, such as a check that found drift or a gate"""
STOPPED_EXIT_STATUS = 143
MAX_LOG_LINES = 400
STORE_FILE, LOG_FOLDER = "jobs.sqlite", "logs"


class JobDesk:
    """Jobs of a site; every method blocks, so handlers call it in a thread."""

    def __init__(self, ray: RayDashboard | None, results: Path, state_folder: Path) -> None:
        self.ray, self.results, self.log_folder = ray, results, state_folder / LOG_FOLDER
        self.log_folder.mkdir(parents=True, exist_ok=True)
        self.store = JobStore(state_folder / STORE_FILE)
        self.state_folder, facts = state_folder, find_detached_ray(state_folder)
        self.is_own_ray = ray is not None and facts is not None and facts.dashboard_url == ray.url
        self.refresh_lock = threading.Lock()
        self.refreshed_at = -REFRESH_SECONDS

    def start_job(self, command: str, arguments: Sequence[str], started_by: str, folder: str = "") -> SubmittedJob:
        """Submit a command to Ray and return its job; refuse it if another job writes to its folder."""
        if self.ray is None:
            raise ray_is_missing()
        self.refresh_jobs(at_once=True)
        out = read_out_folder(arguments)
        job = SubmittedJob(
            id=f"{command}-{make_identifier(Path(out).name)}-{secrets.token_hex(3)}",
            command=command,
            arguments=tuple(arguments),
            out=out,
            folder=folder or str(Path.cwd()),
            started_by=started_by,
            submitted=time.time(),
        )
        self.store.claim_job(job, self.name_result(out))
        try:
            self.ray.request("POST", "/api/jobs/", self.build_submission(job))
        except EquipoiseError as error:
            if error.code == "service-refused":  # otherwise Ray may have it all the same, and is asked later
                self.store.set_status(job, "failed", time.time())
            raise
        return self.store.set_status(job, "waiting")

    def build_submission(self, job: SubmittedJob) -> dict[str, Any]:
        """Build what Ray is asked to run: the command in its folder, with its output in the site's own log."""
        command = [sys.executable, "-m", COMMAND_MODULES[job.command], *job.arguments]
        folder, log = shlex.quote(job.folder), shlex.quote(str(self.log_file(job.id)))
        entrypoint = f"cd {folder} && exec {shlex.join(command)} >> {log} 2>&1"
        return {
            "entrypoint": entrypoint,
            "submission_id": job.id,
            "metadata": {"job_submission_id": job.id},
            "runtime_env": {"env_vars": build_job_environment(os.environ)},
        }

    def resume_job(self, job: SubmittedJob, started_by: str) -> SubmittedJob:
        """Submit the same command again, which goes on where it was stopped."""
        return self.start_job(job.command, job.arguments, started_by, job.folder)

    def stop_job(self, job_id: str) -> SubmittedJob:
        """Ask Ray to stop a job, which writes a checkpoint first, and return it."""
        self.refresh_jobs(at_once=True)
        job = self.store.find_job(job_id)
        if not job.is_active:
            raise EquipoiseError("path-in-use", f"cannot stop the job {job.id}: it has ended already ({job.status})")
        if self.ray is None:
            raise ray_is_missing()
        self.ray.request("POST", f"/api/jobs/{job.id}/stop")
        return self.store.mark_stopping(job.id)

    def find_job(self, job_id: str) -> SubmittedJob:
        """Return a job as it is now."""
        self.refresh_jobs()
        return self.store.find_job(job_id)

    def refresh_jobs(self, at_once: bool = False) -> None:
        """Ask Ray about the jobs that have not ended, unless that was done a moment ago; nothing if there are none.

        While another thread asks, only a call that needs it `at_once` waits: a Ray that does not answer must not keep
        all threads of the site.
        """
        if not self.refresh_lock.acquire(blocking=at_once):
            return
        try:
            if not at_once and time.monotonic() - self.refreshed_at < REFRESH_SECONDS:
                return
            active = self.store.list_active_jobs()
            replies = self.ask_ray([job.id for job in active]) if active else None
            for job in active:
                if replies is not None:
                    self.note_status(job, replies.get(job.id))
            self.refreshed_at = time.monotonic()
        finally:
            self.refresh_lock.release()

    def ask_ray(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]] | None:
        """Return what Ray knows about jobs, by their id; None if it does not answer."""
        if self.ray is None:
            return None
        try:
            replies = self.ray.request("GET", "/api/jobs/", timeout=ASK_SECONDS)
        except EquipoiseError:
            is_gone = self.is_own_ray and find_detached_ray(self.state_folder) is None  # not only busy
            return {} if is_gone else None
        if not isinstance(replies, list):  # what answers is no Ray
            return None
        return {reply["submission_id"]: reply for reply in replies if reply.get("submission_id") in job_ids}

    def note_status(self, job: SubmittedJob, reply: Mapping[str, Any] | None) -> None:
        """Note what Ray says about a job: nothing is lost if the site is killed before, for the next one asks again."""
        if reply is None:  # Ray was started again, or the site was killed before it had submitted the job
            if job.status != "submitting" or time.time() - job.submitted > SUBMIT_SECONDS:
                self.store.set_status(job, "lost", time.time())
            return
        status = STATUS_BY_RAY.get(str(reply.get("status")), "running")
        exit_status = reply.get("driver_exit_code")
        if status == "failed" and exit_status in FINISHED_STATUSES.get(job.command, ()):
            status = "finished"
        if status == "failed" and exit_status == STOPPED_EXIT_STATUS:
            status = "stopped"
        if status in ("waiting", "running") and job.status == "stopping":
            return
        has_ended = status not in ("waiting", "running")
        ended = (float(reply.get("end_time") or 0) / 1000 or time.time()) if has_ended else None
        if status != job.status:
            self.store.set_status(job, status, ended, exit_status)

    def read_log(self, job_id: str, max_lines: int = MAX_LOG_LINES, tail_bytes: int = TAIL_BYTES) -> LogTail:
        """Return the last lines of a job's log."""
        return read_log_tail(self.log_file(job_id), max_lines, tail_bytes)

    def log_file(self, job_id: str) -> Path:
        """Return the file of a job's log; its id comes from the store, so it holds no separator."""
        return self.log_folder / f"{job_id}.log"

    def name_result(self, out: str) -> str:
        """Return the name of a folder below the results, as the site's addresses have it."""
        path = Path(out)
        return path.relative_to(self.results).as_posix() if path.is_relative_to(self.results) else out


def ray_is_missing() -> EquipoiseError:
    """Build the error for a job on a site that shows results alone."""
    problem = "cannot start or stop a job: this site runs without Ray"
    return EquipoiseError("cluster-unreachable", problem, "start the site with equipoise up")


def build_job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job beside those of Ray: where this project lies, and output line by line."""
    root = str(Path(jobs.__file__).parents[1])
    paths = [root, *(path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != root)]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def make_identifier(text: str) -> str:
    """Return a text as a part of an id: letters, digits and dashes."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return "-".join(filter(None, plain.split("-")))[:40] or "job"
