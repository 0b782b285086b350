"""Read verdicts on drift from a running service or from a file."""

import json
from http.client import HTTPException, InvalidURL
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from equipoise.bundle.bundle import PictureBundle
from equipoise.drift.corruptions import CAUSE_NAMES, all_corruptions
from equipoise.drift.diagnosis.verdict import Verdict, parse_verdict
from equipoise.drift.features.box_stats import BOX_CAUSES
from equipoise.drift.profiling.bundle_profile import list_answer_classes
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json
from jobs.publishing.service_address import read_api_key, require_service_url

SERVICE_TIMEOUT_SECONDS = 20.0
MAX_REPLY_BYTES = 1 << 24


def read_verdict(path: Path) -> Verdict:
    """Read a verdict from a JSON file."""
    origin = f"--verdict {path}"
    return require_known_cause(parse_verdict(read_json(path), f"cannot use {origin}: it is not a verdict"), origin)


def fetch_verdict(service_url: str, key_file: Path | None, bundle: PictureBundle) -> Verdict:
    """Fetch the verdict on a bundle's model from the /drift of a running service."""
    require_service_url(service_url)
    api_key = read_api_key(key_file) if key_file else None
    address = f"{service_url.rstrip('/')}/drift?model={quote(bundle.name)}"
    try:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        request = Request(address, headers=headers)  # noqa: S310 - the address is a user's
        with urlopen(request, timeout=SERVICE_TIMEOUT_SECONDS) as reply:  # noqa: S310
            content = reply.read(MAX_REPLY_BYTES)
    except HTTPError as error:
        raise EquipoiseError(
            "service-refused" if error.code < 500 else "service-unavailable",
            f"cannot get a verdict: {address} answers {error.code}: {read_error_message(error)}",
        ) from None
    except (InvalidURL, ValueError) as error:
        raise EquipoiseError(
            "url-format", f"cannot use --service {service_url}: {error}", "give one such as http://127.0.0.1:8000"
        ) from None
    except (OSError, HTTPException) as error:
        raise unavailable_error(address, error) from None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unavailable_error(address, error) from None
    return require_known_cause(parse_verdict(document, f"cannot use {address}: it is not a verdict"), address)


def unavailable_error(address: str, error: Exception) -> EquipoiseError:
    """Return the error for a service that does not answer, or not with JSON."""
    return EquipoiseError(
        "service-unavailable",
        f"cannot get a verdict from {address}: {error}",
        "check that it is the URL of the service",
    )


def read_error_message(error: HTTPError) -> str:
    """Return the service's reason for refusing a request, or else the HTTP reason."""
    try:
        return str(json.loads(error.read(MAX_REPLY_BYTES))["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)


def require_known_cause(verdict: Verdict, origin: str) -> Verdict:
    """Return the verdict; refuse a drift whose cause this version does not know."""
    if verdict.state == "drift" and verdict.cause not in (*CAUSE_NAMES, *BOX_CAUSES):
        raise EquipoiseError(
            "verdict-invalid",
            f"cannot use {origin}: unknown cause {verdict.cause!r}",
            f"choose one of: {', '.join(CAUSE_NAMES)}",
        )
    return verdict


def require_matching_bundle(verdict: Verdict, bundle: PictureBundle) -> None:
    """Refuse a verdict on another model, or with classes or causes that this model cannot have."""
    for name, theirs, ours in (("model", verdict.model, bundle.name), ("version", verdict.version, bundle.version)):
        if theirs is not None and theirs != ours:
            raise EquipoiseError(
                "verdict-mismatch",
                f"cannot use the verdict: it is on {name} {theirs}, --bundle is {ours}",
                "give the bundle that was served",
            )
    if unknown := verdict.classes.keys() - set(list_answer_classes(bundle.manifest)):
        raise EquipoiseError(
            "verdict-mismatch",
            f"cannot use the verdict: --bundle lacks its class {min(unknown)!r}",
            "give the bundle that was served",
        )
    possible = {
        (corruption.cause, corruption.detail)
        for corruption in all_corruptions()
        if bundle.shape[0] == 3 or not corruption.requires_color
    }
    for effect in verdict.effects:
        if (effect.cause, effect.detail) not in possible:
            raise EquipoiseError(
                "verdict-mismatch",
                f"cannot use the verdict: it names {effect.cause} {effect.detail!r}, which this model's"
                " images cannot show",
            )
