"""Options that name a running service: its URL, and a file with its API key."""

from pathlib import Path
from urllib.parse import urlsplit

from equipoise.errors import EquipoiseError
from equipoise.storage.location import reject_credentials


def require_service_url(url: str) -> None:
    """Refuse a URL of a service that has a password, another scheme than HTTP, no host, or an impossible port."""
    reject_credentials(url)
    try:
        parts = urlsplit(url)
        reason = "" if parts.hostname else "it has no host"
        port_is_usable = parts.port != 0
    except ValueError as error:  # such as a port above 65535
        reason, port_is_usable = str(error), True
    if not url.startswith(("http://", "https://")):
        reason = "it is not an HTTP URL"
    elif not port_is_usable:
        reason = "nothing listens on port 0"
    if reason:
        raise EquipoiseError(
            "url-format", f"cannot use --service {url!r}: {reason}", "give one such as http://127.0.0.1:8000"
        )


def read_api_key(key_file: Path) -> str:
    """Read the first API key in a file."""
    if not key_file.is_file():
        raise EquipoiseError(
            "path-kind", f"cannot read --key {key_file}: it is not a file", "give one that holds the service's API key"
        )
    keys = key_file.read_text(errors="replace").split()
    if not keys or not keys[0].isascii() or not keys[0].isprintable():
        raise EquipoiseError(
            "file-damaged", f"cannot read --key {key_file}: it holds no key", "write the service's API key into it"
        )
    return keys[0]
