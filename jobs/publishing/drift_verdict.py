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
from equipoise.drift.corruptions import NAMES, kinds
from equipoise.storage import atomic as store
from equipoise.storage import location

SECONDS = 20.0
MOST_BYTES = 1 << 24  # of a reply


class Effect(BaseModel):
    """What changed, and how much of it."""

    model_config = ConfigDict(allow_inf_nan=False)

    cause: str
    detail: str
    value: float


class Since(BaseModel):
    """When it began."""

    at: AwareDatetime


class Verdict(BaseModel):
    """What is read of one; the rest is for people."""

    state: Literal["ok", "drift", "unknown"]
    why: str = ""
    cause: str | None = None
    effects: list[Effect] = Field(default_factory=list)
    classes: dict[str, NonNegativeInt] = Field(default_factory=dict)
    since: Since | None = None
    model: str | None = None
    version: str | None = None

    @property
    def began(self) -> float:
        """Seconds since 1970; 0 where nobody says."""
        return self.since.at.timestamp() if self.since else 0.0


def read(path: Path) -> Verdict:
    """Of a file."""
    return understood(store.read_json(path), f"--verdict {path}")


def fetched(service: str, key: Path | None, model: Bundle) -> Verdict:
    """What the service says of the model."""
    location.require_no_password(service)
    if not service.startswith(("http://", "https://")):
        raise ValueError(f"--service {service!r} is no address: give one such as http://127.0.0.1:8000")
    shown = secret(key) if key else None
    address = f"{service.rstrip('/')}/drift?model={quote(model.name)}"
    try:
        headers = {"authorization": f"Bearer {shown}"} if shown else {}
        request = Request(address, headers=headers)  # noqa: S310 - the address is a user's
        with urlopen(request, timeout=SECONDS) as reply:  # noqa: S310
            found = json.loads(reply.read(MOST_BYTES))
    except HTTPError as error:
        raise ValueError(f"{address} answers {error.code}: {sentence(error)}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise ValueError(f"{address} gives no verdict ({error}): is it the address of the service?") from None
    return understood(found, address)


def secret(key: Path) -> str:
    """The first of the keys in a file."""
    if not key.is_file():
        raise ValueError(f"--key {key} is no file: write the service's API key into one")
    words = key.read_text(errors="replace").split()
    if not words or not words[0].isascii() or not words[0].isprintable():
        raise ValueError(f"--key {key} holds no key: write one into it")
    return words[0]


def sentence(error: HTTPError) -> str:
    """Why a request was refused, if the service says so."""
    try:
        return str(json.loads(error.read(MOST_BYTES))["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)


def understood(found: object, origin: str) -> Verdict:
    """A verdict, if it is one."""
    try:
        verdict = Verdict.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        why = f"{origin} is no verdict ({place}: {first['msg']})"
        raise ValueError(f"{why}: give what /drift says, or jobs.check with --json") from None
    if verdict.state == "drift" and verdict.cause not in NAMES:
        raise ValueError(f"{origin} names the cause {verdict.cause!r}; there are: {', '.join(NAMES)}")
    return verdict


def require_fitting(found: Verdict, model: Bundle) -> None:
    """Refuse a verdict on another model, or one that cannot be of its pictures."""
    for name, theirs, ours in (("model", found.model, model.name), ("version", found.version, model.version)):
        if theirs is not None and theirs != ours:
            raise ValueError(f"the verdict is on {name} {theirs}, --bundle is {ours}: give the bundle that was served")
    if strange := found.classes.keys() - set(model.classes):
        raise ValueError(f"the verdict counts a class {min(strange)!r} that the model does not know")
    there = {(one.cause, one.detail) for one in kinds() if model.shape[0] == 3 or not one.colours}
    for one in found.effects:
        if (one.cause, one.detail) not in there:
            raise ValueError(f"the verdict tells of {one.cause} {one.detail!r}, which the model's pictures cannot show")
