"""Client of the HTTP API of a Ray's dashboard: its jobs, its nodes and its Serve applications."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from equipoise.errors import EquipoiseError

REQUEST_SECONDS = 30.0  # until a request is given up


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
