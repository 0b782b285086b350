"""Jobs that were started on the site: an SQLite file below the results, written so that a killed site loses nothing."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from equipoise.errors import EquipoiseError

BUSY_SECONDS = 10.0  # for another thread or process that writes
BEGIN_WRITING = "BEGIN IMMEDIATE"  # what is read before it is changed does not change meanwhile
ACTIVE_STATUSES = ("submitting", "waiting", "running", "stopping")
CREATE_STATEMENTS = (
    """CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, command TEXT NOT NULL, arguments TEXT NOT NULL, out TEXT NOT NULL, folder TEXT NOT NULL,
    started_by TEXT NOT NULL, submitted REAL NOT NULL, status TEXT NOT NULL, ended REAL, exit_status INTEGER
) STRICT""",
    "CREATE INDEX IF NOT EXISTS jobs_by_time ON jobs (submitted)",
)
COLUMNS = "id, command, arguments, out, folder, started_by, submitted, status, ended, exit_status"


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """A job that somebody started on the site."""

    id: str
    """its name on Ray and in the site's addresses"""
    command: str
    arguments: tuple[str, ...]
    out: str
    """folder that it writes to"""
    folder: str
    """folder that it was started in, to which its relative paths refer"""
    started_by: str
    submitted: float
    """seconds since 1970"""
    status: str = "submitting"
    """submitting, waiting, running, stopping, finished, failed, stopped or lost"""
    ended: float | None = None
    exit_status: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it runs, or is about to."""
        return self.status in ACTIVE_STATUSES


class JobConflict(EquipoiseError):  # noqa: N818 - nothing has gone wrong
    """Refusal to start a job whose folder another one writes to."""

    def __init__(self, out_name: str, other: SubmittedJob) -> None:
        super().__init__(
            "path-in-use",
            f"cannot start a job that writes to {out_name}: {other.command} by {other.started_by} writes there",
            f"open its job {other.id}, or choose another --out",
        )
        self.other = other


class JobStore:
    """Jobs in an SQLite file; every call opens it anew, so that any thread may call."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with self.connect(BEGIN_WRITING) as connection:
                for statement in CREATE_STATEMENTS:
                    connection.execute(statement)
        except sqlite3.DatabaseError as error:
            remedy = "restore it, or move it away: the jobs go on, and are no longer listed"
            raise EquipoiseError("file-damaged", f"cannot read the jobs in {file}: {error}", remedy) from None

    @contextmanager
    def connect(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Open the file for the length of a block, which is one transaction; one that only reads waits for no other."""
        connection = sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()  # rolls back what was not committed

    def claim_job(self, job: SubmittedJob, out_name: str) -> None:
        """Note a job before it is submitted; refuse one whose folder, or one inside it, another job writes to."""
        with self.connect(BEGIN_WRITING) as connection:
            for other in query_jobs(connection, f"WHERE status IN {ACTIVE_STATUSES}"):
                if folders_overlap(job.out, other.out):
                    raise JobConflict(out_name, other)
            values = (job.id, job.command, json.dumps(job.arguments), job.out, job.folder, job.started_by)
            connection.execute(
                f"INSERT INTO jobs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",  # noqa: S608 - constants
                (*values, job.submitted, job.status),
            )

    def set_status(
        self, job: SubmittedJob, status: str, ended: float | None = None, exit_status: int | None = None
    ) -> SubmittedJob:
        """Note what has become of a job, and return it as it is now.

        Nothing is noted if another thread has noted something since `job` was read, which is older news then.
        """
        with self.connect(BEGIN_WRITING) as connection:
            connection.execute(
                "UPDATE jobs SET status = ?, ended = ?, exit_status = ? WHERE id = ? AND status = ?",
                (status, ended, exit_status, job.id, job.status),
            )
        return self.find_job(job.id)

    def mark_stopping(self, job_id: str) -> SubmittedJob:
        """Note that a job was asked to stop, unless it has ended meanwhile, and return it as it is now."""
        with self.connect(BEGIN_WRITING) as connection:
            connection.execute(
                f"UPDATE jobs SET status = 'stopping' WHERE id = ? AND status IN {ACTIVE_STATUSES}",  # noqa: S608
                (job_id,),
            )
        return self.find_job(job_id)

    def find_job(self, job_id: str) -> SubmittedJob:
        """Return a job by its id; refuse an unknown one."""
        with self.connect() as connection:
            jobs = query_jobs(connection, "WHERE id = ?", job_id)
        if not jobs:
            raise EquipoiseError("path-missing", f"cannot find the job {job_id[:80]!r}", "see the list of jobs")
        return jobs[0]

    def list_jobs(self, limit: int, offset: int = 0) -> list[SubmittedJob]:
        """Return jobs, the newest first."""
        with self.connect() as connection:
            return query_jobs(connection, "ORDER BY submitted DESC LIMIT ? OFFSET ?", limit, offset)

    def list_active_jobs(self) -> list[SubmittedJob]:
        """Return the jobs that run or are about to, the oldest first."""
        with self.connect() as connection:
            return query_jobs(connection, f"WHERE status IN {ACTIVE_STATUSES} ORDER BY submitted")

    def count_jobs(self) -> int:
        """Return how many jobs were ever started."""
        with self.connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
            return int(count)

    def list_jobs_of_folder(self, out: str) -> list[SubmittedJob]:
        """Return the jobs that write or wrote to a folder, the newest first."""
        with self.connect() as connection:
            return query_jobs(connection, "WHERE out = ? ORDER BY submitted DESC", out)


def query_jobs(connection: sqlite3.Connection, condition: str, *values: object) -> list[SubmittedJob]:
    """Return the jobs of a query; `condition` is a constant of this module, `values` may come from anywhere."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM jobs {condition}", values).fetchall()  # noqa: S608 - constants
    return [build_job(row) for row in rows]


def build_job(row: Sequence[object]) -> SubmittedJob:
    """Build a job from its row."""
    values = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["arguments"] = tuple(json.loads(str(values["arguments"])))
    return SubmittedJob(**values)  # type: ignore[arg-type] # the columns have the types of the fields


def folders_overlap(first: str, second: str) -> bool:
    """Return whether two folders are the same, or one lies inside the other."""
    return first == second or first.startswith(f"{second}/") or second.startswith(f"{first}/")
