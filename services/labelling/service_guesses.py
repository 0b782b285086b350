"""First guesses of a prediction service that is asked over HTTP."""

import json
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from equipoise.errors import EquipoiseError
from equipoise.labels.guesses import Guess, parse_guess

GUESS_TIMEOUT_SECONDS = 10.0
MAX_GUESS_BYTES = 1 << 22


class ServiceGuesser:
    """Model behind the /predict of a service."""

    def __init__(self, service_url: str, api_key: str | None = None) -> None:
        self.address = f"{service_url.rstrip('/')}/predict"
        self.headers = {"content-type": "application/octet-stream"} | (
            {"authorization": f"Bearer {api_key}"} if api_key else {}
        )

    def __call__(self, path: Path) -> Guess:
        """Return what the service sees in a picture; raise an error of the user if it does not answer."""
        request = Request(self.address, path.read_bytes(), self.headers)  # noqa: S310 - the address is a user's
        try:
            with urlopen(request, timeout=GUESS_TIMEOUT_SECONDS) as reply:  # noqa: S310
                contents = json.loads(reply.read(MAX_GUESS_BYTES))
        except HTTPError as error:
            code = "service-refused" if error.code < 500 else "service-unavailable"
            raise EquipoiseError(code, f"{self.address} answers {error.code}: {error.reason}") from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise EquipoiseError("service-unavailable", f"{self.address} gives no guess: {error}") from None
        return parse_guess(contents, f"the reply of {self.address}")
