"""What the pages and the API tell of a job: its state, how far it is, and how it ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from dashboards.theme import format_seconds
from equipoise.profiling.profile_report import PROFILE_FILE
from services.site.jobs_on_ray.cluster_view import ClusterUse
from services.site.jobs_on_ray.form_arguments import format_command_line
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.jobs_on_ray.job_log import SHORT_TAIL_BYTES, LogTail
from services.site.jobs_on_ray.job_store import SubmittedJob
from services.site.site_parts import HomeItem, HomeLists

STATUS_WORDS = {
    "submitting": "being submitted",
    "waiting": "waiting for Ray",
    "running": "running",
    "stopping": "stopping, which writes a checkpoint",
    "finished": "finished",
    "failed": "failed",
    "stopped": "stopped",
    "lost": "lost with its Ray",
}
LOST_SENTENCE = "the Ray that ran this job is gone; resume goes on from what it has written"
FAILURES_SHOWN_SECONDS = 7 * 86400  # on the home page
CLOCK_SECONDS = 10  # between two times that an open page shows while the log is silent
MAX_HOME_ITEMS = 10
RESULT_PAGES = {"sweep": "curve", "train": "run", "check": "drift", "plan": "curve", "profile": "profile"}
"""page of the results by command, as the commands write it"""
MAX_PROGRESS_LENGTH = 120  # characters of a log's last line on the home page
RECENT_JOBS = 100  # looked through for what waits for a person


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A job as the pages show it."""

    job: SubmittedJob
    log: LogTail
    out_name: str
    """its folder below the results; empty if it has none"""
    command_line: str
    result_page: str
    """address of the page of its results; empty until there is one"""
    plan_page: str
    """address of the plan that it made; empty if it made none"""

    @property
    def state(self) -> str:
        """The status of the job in words."""
        return STATUS_WORDS.get(self.job.status, self.job.status)

    @property
    def tone(self) -> str:
        """Whether the status is good or bad news, for its colour; empty for neither."""
        return {"finished": "good", "failed": "bad", "lost": "bad"}.get(self.job.status, "")

    @property
    def progress(self) -> str:
        """How far it is: the last line of its log."""
        return self.log.last_line

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return max(0.0, (self.job.ended or time.time()) - self.job.submitted)

    @property
    def time_text(self) -> str:
        """How long it has run and how long it takes at most, in words."""
        left = self.log.seconds_left if self.job.is_active else None
        return f"{format_seconds(self.seconds)}{f', {format_seconds(left)} left at most' if left is not None else ''}"

    @property
    def home_detail(self) -> str:
        """State, time and progress in one line, for the home page."""
        if not self.progress:
            return f"{self.state}, {self.time_text}"
        time_text = format_seconds(self.seconds) if "left" in self.progress else self.time_text
        return f"{self.state}, {time_text}: {self.progress[:MAX_PROGRESS_LENGTH]}"

    @property
    def version(self) -> str:
        """What changes when the page of the job has something new to show: at least every ten seconds."""
        return f"{self.job.status}-{self.log.size}-{int(self.seconds / CLOCK_SECONDS)}"

    @property
    def failure(self) -> str:
        """The sentence with which it failed; empty unless it failed."""
        if self.job.status == "lost":
            return LOST_SENTENCE
        return self.log.find_failure()[0] if self.job.status == "failed" else ""

    @property
    def can_resume(self) -> bool:
        """Whether the same command would go on."""
        return not self.job.is_active


def summarize_job(job: SubmittedJob, desk: JobDesk, tail_bytes: int = SHORT_TAIL_BYTES) -> JobSummary:
    """Summarize a job with the end of its log, which is short unless its page shows it."""
    out_name = desk.name_result(job.out) if job.out else ""
    out = Path(job.out) if job.out else None
    page = RESULT_PAGES.get(job.command, "")
    has_page = page and out is not None and has_result_page(job.command, out)
    has_plan = out is not None and (out / "plan.json").is_file()
    return JobSummary(
        job=job,
        log=desk.read_log(job.id, tail_bytes=tail_bytes),
        out_name=out_name,
        command_line=format_command_line(job.command, job.arguments, Path(job.folder)),
        result_page=f"/experiments/{quote(out_name)}/{page}.html" if has_page else "",
        plan_page=f"/plan/{quote(out_name)}" if has_plan else "",
    )


def has_result_page(command: str, out: Path) -> bool:
    """Return whether the page of a command's results can be opened; a profile has none before its end."""
    return (out / PROFILE_FILE).is_file() if command == "profile" else holds_files(out)


def holds_files(folder: Path) -> bool:
    """Return whether there is anything in a folder; False if it is not there, or cannot be read."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def list_home_lines(desk: JobDesk, use: ClusterUse) -> HomeLists:
    """Return the lines of the home page: jobs in progress, failures, and plans that nobody has trained with yet."""
    jobs = desk.store.list_jobs(RECENT_JOBS)
    running = [summarize_job(job, desk) for job in reversed(desk.store.list_active_jobs())]
    return HomeLists(
        cluster=use.describe(),
        running=[
            HomeItem(
                text=f"{entry.job.command} {entry.out_name}",
                href=f"/jobs/{entry.job.id}",
                detail=entry.home_detail,
            )
            for entry in running
        ],
        for_a_person=[*list_open_plans(jobs, desk), *list_failures(jobs, desk)][:MAX_HOME_ITEMS],
    )


def list_open_plans(jobs: Sequence[SubmittedJob], desk: JobDesk) -> list[HomeItem]:
    """Return the plans of finished sweeps that no later job has trained with."""
    trained = {value for job in jobs if job.command == "train" for value in job.arguments}
    sweeps = {job.out: job for job in reversed(jobs) if job.command in ("sweep", "plan") and job.status == "finished"}
    return [
        HomeItem(
            text=f"accept the plan of {desk.name_result(out)}",
            href=f"/plan/{quote(desk.name_result(out))}",
            detail="train with it, or choose another of its front",
        )
        for out in sweeps
        if not {out, f"{out}/plan.json"} & trained and Path(out, "plan.json").is_file()
    ]


def list_failures(jobs: Sequence[SubmittedJob], desk: JobDesk) -> list[HomeItem]:
    """Return the recent jobs that failed and whose folder no later job has written to."""
    newest: dict[str, SubmittedJob] = {}
    for job in jobs:  # the newest first
        newest.setdefault(job.out or job.id, job)
    since = time.time() - FAILURES_SHOWN_SECONDS
    failed = [job for job in newest.values() if job.status in ("failed", "lost") and job.submitted > since]
    return [
        HomeItem(
            text=f"{job.command} {desk.name_result(job.out)} has {'failed' if job.status == 'failed' else 'been lost'}",
            href=f"/jobs/{job.id}",
            detail=summarize_job(job, desk).failure[:200],
        )
        for job in failed[:MAX_HOME_ITEMS]
    ]
