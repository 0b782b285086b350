"""Post drift alarms to the webhook URL in the service's settings; no request can change that URL."""

import json
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from equipoise.type_aliases import JsonObject

WEBHOOK_TIMEOUT_SECONDS = 5.0


class NoRedirectHandler(HTTPRedirectHandler):
    """Redirect handler that follows none: a receiver could otherwise make us request internal addresses."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes a redirection an error."""


def post_event(url: str, event: JsonObject, timeout_seconds: float = WEBHOOK_TIMEOUT_SECONDS) -> None:
    """Post one alarm as JSON and wait for the reply; exceptions do not name the URL, which may be a secret."""
    body = json.dumps(event, allow_nan=False).encode()
    request = Request(url, body, {"content-type": "application/json"})  # noqa: S310 - the settings check its scheme
    with build_opener(NoRedirectHandler).open(request, timeout=timeout_seconds) as reply:
        reply.read(1 << 10)
