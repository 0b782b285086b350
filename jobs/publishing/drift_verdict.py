"""Verdicts on drift as others write them: by a running service, or in a file."""

import json
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from equipoise.bundle.bundle import Bundle
from equipoise.drift.corruptions import CAUSE_NAMES, all_corruptions
from equipoise.storage.atomic import read_json
from equipoise.storage.location import reject_credentials

SERVICE_TIMEOUT_SECONDS = 20.0
MAX_REPLY_BYTES = 1 << 24  # of a reply


class Effect(BaseModel):
    """What changed, and how much of it."""

    model_config = ConfigDict(allow_inf_nan=False)

    cause: str
    detail: str
    value: float


class Onset(BaseModel):
    """When it began."""

    at: AwareDatetime


class Verdict(BaseModel):
    """What is read of one; the rest is for people."""

    state: Literal["ok", "drift", "unknown"]
    why: str = ""
    cause: str | None = None
    effects: list[Effect] = Field(default_factory=list)
    classes: dict[str, NonNegativeInt] = Field(default_factory=dict)
    since: Onset | None = None
    model: str | None = None
    version: str | None = None

    @property
    def onset_seconds(self) -> float:
        """Seconds since 1970; 0 where nobody says."""
        return self.since.at.timestamp() if self.since else 0.0


def read_verdict(path: Path) -> Verdict:
    """Of a file."""
    return parse_verdict(read_json(path), f"--verdict {path}")


def fetch_verdict(service_url: str, key_file: Path | None, bundle: Bundle) -> Verdict:
    """What the service says of the model."""
    reject_credentials(service_url)
    if not service_url.startswith(("http://", "https://")):
        raise ValueError(f"--service {service_url!r} is no address: give one such as http://127.0.0.1:8000")
    shown = read_api_key(key_file) if key_file else None
    address = f"{service_url.rstrip('/')}/drift?model={quote(bundle.name)}"
    try:
        headers = {"authorization": f"Bearer {shown}"} if shown else {}
        request = Request(address, headers=headers)  # noqa: S310 - the address is a user's
        with urlopen(request, timeout=SERVICE_TIMEOUT_SECONDS) as reply:  # noqa: S310
            found = json.loads(reply.read(MAX_REPLY_BYTES))
    except HTTPError as error:
        raise ValueError(f"{address} answers {error.code}: {read_error_message(error)}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise ValueError(f"{address} gives no verdict ({error}): is it the address of the service?") from None
    return parse_verdict(found, address)


def read_api_key(key_file: Path) -> str:
    """The first of the keys in a file."""
    if not key_file.is_file():
        raise ValueError(f"--key {key_file} is no file: write the service's API key into one")
    words = key_file.read_text(errors="replace").split()
    if not words or not words[0].isascii() or not words[0].isprintable():
        raise ValueError(f"--key {key_file} holds no key: write one into it")
    return words[0]


def read_error_message(error: HTTPError) -> str:
    """Why a request was refused, if the service says so."""
    try:
        return str(json.loads(error.read(MAX_REPLY_BYTES))["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)


def parse_verdict(document: object, origin: str) -> Verdict:
    """A verdict, if it is one."""
    try:
        verdict = Verdict.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        why = f"{origin} is no verdict ({place}: {first['msg']})"
        raise ValueError(f"{why}: give what /drift says, or jobs.check with --json") from None
    if verdict.state == "drift" and verdict.cause not in CAUSE_NAMES:
        raise ValueError(f"{origin} names the cause {verdict.cause!r}; there are: {', '.join(CAUSE_NAMES)}")
    return verdict


def require_matching_bundle(verdict: Verdict, bundle: Bundle) -> None:
    """Refuse a verdict on another model, or one that cannot be of its pictures."""
    for name, theirs, ours in (("model", verdict.model, bundle.name), ("version", verdict.version, bundle.version)):
        if theirs is not None and theirs != ours:
            raise ValueError(f"the verdict is on {name} {theirs}, --bundle is {ours}: give the bundle that was served")
    if strange := verdict.classes.keys() - set(bundle.classes):
        raise ValueError(f"the verdict counts a class {min(strange)!r} that the model does not know")
    there = {(one.cause, one.detail) for one in all_corruptions() if bundle.shape[0] == 3 or not one.requires_color}
    for one in verdict.effects:
        if (one.cause, one.detail) not in there:
            raise ValueError(f"the verdict tells of {one.cause} {one.detail!r}, which the model's pictures cannot show")
