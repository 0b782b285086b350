"""Client of the site that `equipoise up` serves, for scripts and CI: start jobs, follow them, and read their results.

    client = EquipoiseClient("http://127.0.0.1:8080", key="...")
    job = client.start_job("train", workload="digits", out="first")
    job = client.wait_for_job(job["id"])

Every method answers with the JSON of its endpoint as plain dictionaries and lists; /api/openapi.json describes them.
"""

import json
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from equipoise.errors import ERROR_CODES, EquipoiseError
from equipoise.storage.location import require_http_url
from equipoise.type_aliases import JsonObject

ACTIVE_JOB_STATUSES = ("submitting", "waiting", "running", "stopping")
TIMEOUT_SECONDS = 60.0  # for an answer
CHANGE_TIMEOUT_SECONDS = 400.0  # for that to a change: the first deployment starts Ray Serve
POLL_SECONDS = 2.0  # between two looks at a job


class EquipoiseClient:
    """Client of a site at a URL, with an API key where the site asks for one.

    What the site refuses is an EquipoiseError with the sentence and the code that the command would give.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None) -> None:
        require_http_url("url", url, "http://127.0.0.1:8080")
        self.url, self.parts, self.key = url.rstrip("/"), urlsplit(url), require_plain_key(key or "")

    def request(
        self,
        method: str,
        path: str,
        payload: Any = None,
        query: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Send a request to an endpoint below /api and return the JSON of its answer."""
        if timeout_seconds is None:
            timeout_seconds = TIMEOUT_SECONDS if method == "GET" else CHANGE_TIMEOUT_SECONDS
        address = f"/api/{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        connect = HTTPSConnection if self.parts.scheme == "https" else HTTPConnection
        connection = connect(str(self.parts.hostname), self.parts.port, timeout=timeout_seconds)
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, address, None if payload is None else json.dumps(payload), headers)
            reply = connection.getresponse()
            status, content = reply.status, reply.read()
        except TimeoutError:
            problem = f"the site at {self.url} has not answered within {timeout_seconds:g} s"
            remedy = "it may still do what was asked: look before you ask again"
            raise EquipoiseError("service-unavailable", problem, remedy) from None
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
        """Return the newest jobs of the site."""
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

    def list_experiments(
        self, terms: str = "", sort: str = "-modified", offset: int = 0, limit: int = 50
    ) -> JsonObject:
        """Return experiments that meet terms such as `lr>0.05 workload=digits`, and how many there are."""
        query = {"filter": terms, "sort": sort, "offset": offset, "limit": limit}
        experiments: JsonObject = self.request("GET", "experiments", query=query)
        return experiments

    def get_experiment(self, path: str) -> JsonObject:
        """Return one experiment, or the record of a trial, by its path below the results."""
        experiment: JsonObject = self.request("GET", f"experiments/{quote(path)}")
        return experiment

    def compare_experiments(self, paths: Sequence[str]) -> JsonObject:
        """Return settings and results of two to six experiments side by side."""
        comparison: JsonObject = self.request("GET", "comparison", query={"path": [*paths]})
        return comparison

    def get_notes(self, path: str) -> JsonObject:
        """Return the notes and tags of an experiment."""
        notes: JsonObject = self.request("GET", f"notes/{quote(path)}")
        return notes

    def write_note(
        self, path: str, text: str = "", add_tags: Sequence[str] = (), remove_tags: Sequence[str] = ()
    ) -> JsonObject:
        """Write a note to an experiment, set and remove tags, and return all of them."""
        body = {"text": text, "add_tags": [*add_tags], "remove_tags": [*remove_tags]}
        notes: JsonObject = self.request("POST", f"notes/{quote(path)}", body)
        return notes

    def get_plan(self, path: str, **limits: str) -> JsonObject:
        """Return the plan of a sweep within limits, in the words of the command: deadline="15m", price="3usd"."""
        plan: JsonObject = self.request("GET", f"plan/{quote(path)}", query=limits)
        return plan

    def list_bundles(self) -> list[JsonObject]:
        """Return the bundles below the results folder, the latest published first."""
        bundles: list[JsonObject] = self.request("GET", "bundles")["bundles"]
        return bundles

    def list_deployments(self) -> list[JsonObject]:
        """Return the deployments with their state, traffic and verdict."""
        deployments: list[JsonObject] = self.request("GET", "deployments")["deployments"]
        return deployments

    def get_deployment(self, name: str) -> JsonObject:
        """Return a deployment as it is now."""
        return self._change_deployment("GET", name)

    def deploy_bundle(self, bundle: str, **options: Any) -> JsonObject:
        """Start a service of a bundle; the options are `name`, `port`, `replicas` and `requires_key`."""
        deployment: JsonObject = self.request("POST", "deployments", {"bundle": bundle, **options})
        return deployment

    def start_canary(self, name: str, bundle: str, share: float = 0.1) -> JsonObject:
        """Let a bundle answer a share of the requests to a deployment."""
        return self._change_deployment("POST", name, "/canary", {"bundle": bundle, "share": share})

    def stop_canary(self, name: str) -> JsonObject:
        """Let the canary of a deployment answer no more."""
        return self._change_deployment("DELETE", name, "/canary")

    def promote_bundle(self, name: str, bundle: str | None = None) -> JsonObject:
        """Let a bundle, the canary if none is named, answer all requests to a deployment."""
        return self._change_deployment("POST", name, "/promote", {"bundle": bundle})

    def roll_back(self, name: str, bundle: str | None = None) -> JsonObject:
        """Let the previous bundle of a deployment answer again; where `bundle` is given, refuse to if it is another."""
        return self._change_deployment("POST", name, "/roll-back", {"bundle": bundle})

    def undeploy(self, name: str) -> JsonObject:
        """End a deployment, whose captures and labels stay, and return it as it was."""
        return self._change_deployment("DELETE", name)

    def adapt_deployment(self, name: str, **options: Any) -> JsonObject:
        """Start the adaptation of a deployment's model; the options are `epochs`, `workers` and `accept_blur`."""
        return self._change_deployment("POST", name, "/adapt", options)

    def get_adaptation(self, name: str) -> JsonObject | None:
        """Return what became of a deployment's adaptation, with what its gate compared; None if there is none."""
        adaptation: JsonObject | None = self.request("GET", f"deployments/{quote(name, '')}/adaptation")
        return adaptation

    def _change_deployment(self, method: str, name: str, action: str = "", payload: Any = None) -> JsonObject:
        deployment: JsonObject = self.request(method, f"deployments/{quote(name, '')}{action}", payload)
        return deployment


def require_plain_key(key: str) -> str:
    """Return a key without the line break behind it in a file; refuse what no header can hold, without showing it."""
    key = key.strip()
    if not key.isprintable() or " " in key or any(letter > "\xff" for letter in key):
        problem = "cannot use this key: it holds a space, a line break or a letter that no request can carry"
        raise EquipoiseError("option-format", problem, "give the key alone, without its role and name")
    return key


def read_answer(status: int, content: bytes) -> Any:
    """Return the JSON of an answer; raise what the site refuses as an error with its sentence and code."""
    try:
        answer = json.loads(content)
        is_json = True
    except ValueError:
        answer, is_json = None, False
    if status < 400 and is_json:
        return answer
    sentence = answer.get("error") if isinstance(answer, dict) else None
    code = answer.get("code", "service-refused") if isinstance(answer, dict) else "service-unavailable"
    raise EquipoiseError(
        code if code in ERROR_CODES else "service-refused", sentence or f"the site answered {status} without a reason"
    )
