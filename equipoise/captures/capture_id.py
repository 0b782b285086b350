"""Ids by which users name captures, and the error where there is no such capture."""

from equipoise.captures.capture import CAPTURE_ID_PATTERN
from equipoise.errors import EquipoiseError


class CaptureNotFound(EquipoiseError):  # noqa: N818  # reads as a sentence where it is caught
    """Error of a request for a capture that does not exist or is damaged."""


def require_capture_id(capture_id: str) -> None:
    """Refuse a string that is not a capture's id, so that none becomes part of a path."""
    if not CAPTURE_ID_PATTERN.fullmatch(capture_id):
        raise CaptureNotFound(
            "capture-missing", f"{capture_id[:40]!r} is not a capture id: an id has 16 hexadecimal digits"
        )


def not_found_message(capture_id: str) -> str:
    """Return the message for a capture that cannot be found."""
    return f"there is no capture {capture_id}: it was removed to make room, is damaged, or never existed"
