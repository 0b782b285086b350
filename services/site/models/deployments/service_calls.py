"""Calls of the site to a service that it has deployed, on loopback and with the service's key if it has one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import JsonObject
from services.http.message_types import ComparisonReply, ModelsReply

CALL_TIMEOUT_SECONDS = 3.0
PREDICTION_TIMEOUT_SECONDS = 30.0
MAX_REPLY_BYTES = 1 << 24
OPENER = build_opener(ProxyHandler({}))  # a proxy could not reach this machine, and must not see a key
DecodedReplyT = TypeVar("DecodedReplyT")


@dataclass(frozen=True, kw_only=True)
class ServiceCalls:
    """HTTP client of one service."""

    url: str
    """URL with a slash at its end"""
    model: str
    """name of its model"""
    key: str | None = field(default=None, repr=False)

    def get_models(self) -> ModelsReply:
        """Return the models of the service and their versions."""
        return self._get_json("models", lambda contents: msgspec.convert(contents, ModelsReply))

    def get_verdict(self) -> StreamVerdict:
        """Return the drift verdict on its requests."""
        return self._get_json(f"drift?model={quote(self.model)}", StreamVerdict.from_json)

    def get_events(self) -> list[DriftEvent]:
        """Return alarms, their ends and resets, the latest last."""
        path = f"drift/history?model={quote(self.model)}"
        return self._get_json(path, lambda contents: [*map(DriftEvent.from_json, contents["events"])])

    def get_comparison(self) -> ComparisonReply:
        """Return how far the canary agrees with the current version."""
        path = f"models/{quote(self.model)}/compared"
        return self._get_json(path, lambda contents: msgspec.convert(contents, ComparisonReply))

    def get_metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self._send("metrics").decode(errors="replace")

    def reset_drift(self) -> None:
        """Restart the drift charts, once a change is known or fixed."""
        self._send(f"drift/reset?model={quote(self.model)}", b"")

    def predict(self, body: bytes, content_type: str) -> JsonObject:
        """Return the model's answer to one picture, row or text."""
        path = f"models/{quote(self.model)}/predict"
        content = self._send(path, body, content_type, PREDICTION_TIMEOUT_SECONDS)
        return self._decode(path, content, lambda contents: msgspec.convert(contents, JsonObject))

    def _get_json(self, path: str, decode: Callable[[Any], DecodedReplyT]) -> DecodedReplyT:
        return self._decode(path, self._send(path), decode)

    def _decode(self, path: str, content: bytes, decode: Callable[[Any], DecodedReplyT]) -> DecodedReplyT:
        try:
            return decode(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EquipoiseError(
                "service-unavailable", f"cannot read the reply of {self.url}{path}: {error}", "see the service's log"
            ) from None

    def _send(
        self,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/octet-stream",
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> bytes:
        headers = {"content-type": content_type} if body is not None else {}
        headers |= {"authorization": f"Bearer {self.key}"} if self.key else {}
        request = Request(f"{self.url}{path}", body, headers)  # noqa: S310 - of a service that the site has started
        try:
            with OPENER.open(request, timeout=timeout_seconds) as reply:
                content: bytes = reply.read(MAX_REPLY_BYTES)
                return content
        except HTTPError as error:
            code = "service-refused" if error.code < 500 else "service-unavailable"
            raise EquipoiseError(code, read_error_text(error)) from None
        except (OSError, HTTPException) as error:
            raise EquipoiseError(
                "service-unavailable", f"cannot reach the service at {self.url}: {error}", "wait until it is running"
            ) from None


def read_error_text(error: HTTPError) -> str:
    """Return the sentence with which a service refuses a request, or else the HTTP reason."""
    try:
        contents: Mapping[str, Any] = json.loads(error.read(MAX_REPLY_BYTES))
        return str(contents["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"the service answers {error.code}: {error.reason}"
