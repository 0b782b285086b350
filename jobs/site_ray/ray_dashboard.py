"""Client of the HTTP API of a Ray's dashboard: its jobs, its nodes and its Serve applications."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from equipoise.errors import EquipoiseError

REQUEST_SECONDS = 30.0  # until a request is given up
DEFAULT_TOKEN_FILE = "~/.ray/auth_token"  # noqa: S105 - where Ray looks for it
READY_SECONDS = 5.0  # for the answer of a dashboard that may still be starting


class RayDashboard:
    """Ray's dashboard at a URL; every call blocks, so handlers call it in a thread."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.token = url.rstrip("/"), token

    def request(self, method: str, path: str, payload: Any = None, timeout: float = REQUEST_SECONDS) -> Any:
        """Send a request and return the JSON of its answer, or its text; refuse an answer with an error status."""
        status, text = self.send(method, path, payload, timeout)
        if status >= 400:
            reason = text.strip().splitlines()[-1][:300] if text.strip() else "no reason given"
            raise EquipoiseError("service-refused", f"cannot {method} {path} at Ray: it answered {status}: {reason}")
        try:
            return json.loads(text)
        except ValueError:
            return text

    def is_ready(self) -> bool:
        """Return whether it answers, with all that is needed to take jobs."""
        try:
            return self.send("GET", "/api/jobs/", None, READY_SECONDS)[0] == 200
        except EquipoiseError:
            return False

    def send(self, method: str, path: str, payload: Any, timeout: float) -> tuple[int, str]:
        """Send a request and return the status and the text of its answer."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        headers: Mapping[str, str] = {"authorization": f"Bearer {self.token}"} if self.token else {}
        body = None if payload is None else json.dumps(payload).encode()
        try:
            connection.request(method, path, body, {**headers, "content-type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            problem = f"cannot reach Ray at {self.url}: {error or type(error).__name__}"
            raise EquipoiseError("cluster-unreachable", problem, "start it again with equipoise up") from None
        finally:
            connection.close()


def read_client_token(environment: Mapping[str, str]) -> str | None:
    """Return the token that Ray's own clients would send, by the variables of Ray in an environment."""
    if environment.get("RAY_AUTH_MODE") != "token":
        return None
    if token := environment.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(environment.get("RAY_AUTH_TOKEN_PATH", DEFAULT_TOKEN_FILE)).expanduser()
    if not path.is_file():
        raise EquipoiseError("path-missing", f"cannot read the token of Ray: there is no file {path}")
    return path.read_text(encoding="utf-8").strip()
