"""An alarm, told to a URL that whoever starts the service chose; no request can choose another."""

import json
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

WEBHOOK_TIMEOUT_SECONDS = 5.0


class NoRedirectHandler(HTTPRedirectHandler):
    """Follow nobody: who was told could otherwise have us ask what only we can reach."""

    def redirect_request(self, *_: Any) -> None:
        """None: a redirection is an error."""


def post_event(url: str, event: dict[str, Any]) -> None:
    """One alarm as JSON. What is raised does not name the URL, which may be a secret itself."""
    body = json.dumps(event, allow_nan=False).encode()
    request = Request(url, body, {"content-type": "application/json"})  # noqa: S310 - its scheme is looked at in settings
    with build_opener(NoRedirectHandler).open(request, timeout=WEBHOOK_TIMEOUT_SECONDS) as reply:
        reply.read(1 << 10)
