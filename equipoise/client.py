"""Client of the site that `equipoise up` serves, for scripts and CI: start jobs, follow them, and read their results.

    client = EquipoiseClient("http://127.0.0.1:8080", key="...")
    job = client.start_job("train", workload="digits", out="first")
    job = client.wait_for_job(job["id"])

Every method answers with the JSON of its endpoint as plain dictionaries and lists; /api/openapi.json describes them.
"""

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from equipoise.errors import ERROR_CODES, EquipoiseError
from equipoise.type_aliases import JsonObject

ACTIVE_JOB_STATUSES = ("submitting", "waiting", "running", "stopping")
TIMEOUT_SECONDS = 60.0  # for an answer
POLL_SECONDS = 2.0  # between two looks at a job


class EquipoiseClient:
    """Client of a site at a URL, with an API key where the site asks for one.

    What the site refuses is an EquipoiseError with the sentence and the code that the command would give.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EquipoiseError("url-format", f"cannot use {url!r} as the address of a site", "give http://HOST:PORT")
        self.url, self.parts, self.key = url.rstrip("/"), parts, key

    def request(self, method: str, path: str, payload: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Send a request to an endpoint below /api and return the JSON of its answer."""
        address = f"/api/{path}" + (f"?{urlencode(query)}" if query else "")
        connect = HTTPSConnection if self.parts.scheme == "https" else HTTPConnection
        connection = connect(str(self.parts.hostname), self.parts.port, timeout=TIMEOUT_SECONDS)
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, address, None if payload is None else json.dumps(payload), headers)
            reply = connection.getresponse()
            status, content = reply.status, reply.read()
        except (OSError, HTTPException) as error:
            problem = f"cannot reach the site at {self.url}: {error or type(error).__name__}"
            raise EquipoiseError("service-unavailable", problem, "start it with equipoise up") from None
        finally:
            connection.close()
        return read_answer(status, content)

    def list_commands(self) -> list[JsonObject]:
        """Return the commands that can be started, each with its options."""
        commands: list[JsonObject] = self.request("GET", "commands")
        return commands

    def start_job(self, command: str, **options: Any) -> JsonObject:
        """Start a command with its options, underscores for dashes, and return the job; `out` is below the results."""
        named = {name.replace("_", "-"): value for name, value in options.items()}
        job: JsonObject = self.request("POST", "jobs", {"command": command, "options": named})
        return job

    def list_jobs(self, limit: int = 50) -> list[JsonObject]:
        """Return the newest jobs."""
        jobs: list[JsonObject] = self.request("GET", "jobs", query={"limit": limit})["jobs"]
        return jobs

    def get_job(self, job_id: str) -> JsonObject:
        """Return a job as it is now."""
        job: JsonObject = self.request("GET", f"jobs/{quote(job_id, '')}")
        return job

    def read_log(self, job_id: str, lines: int = 100) -> list[str]:
        """Return the last lines of a job's log."""
        log: list[str] = self.request("GET", f"jobs/{quote(job_id, '')}/log", query={"lines": lines})["lines"]
        return log

    def stop_job(self, job_id: str) -> JsonObject:
        """Ask a job to stop, which writes a checkpoint first, and return it."""
        job: JsonObject = self.request("POST", f"jobs/{quote(job_id, '')}/stop")
        return job

    def resume_job(self, job_id: str) -> JsonObject:
        """Start the command of a job again, which goes on where it was stopped, and return the new job."""
        job: JsonObject = self.request("POST", f"jobs/{quote(job_id, '')}/resume")
        return job

    def wait_for_job(self, job_id: str, seconds: float = 3600.0) -> JsonObject:
        """Return a job once it has ended; raise TimeoutError if it has not after so many seconds."""
        deadline = time.monotonic() + seconds
        while (job := self.get_job(job_id))["status"] in ACTIVE_JOB_STATUSES:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job {job_id} took longer than {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        return job

    def get_cluster(self) -> JsonObject:
        """Return how many nodes and slots the cluster has, and how many are busy."""
        cluster: JsonObject = self.request("GET", "cluster")
        return cluster


def read_answer(status: int, content: bytes) -> Any:
    """Return the JSON of an answer; raise what the site refuses as an error with its sentence and code."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if status < 400 and answer is not None:
        return answer
    sentence = answer.get("error") if isinstance(answer, dict) else None
    code = answer.get("code", "service-refused") if isinstance(answer, dict) else "service-unavailable"
    raise EquipoiseError(
        code if code in ERROR_CODES else "service-refused", sentence or f"the site answered {status} without a reason"
    )
