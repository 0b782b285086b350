"""Options that name a running service: its URL, and a file with its API key."""

from pathlib import Path

from equipoise.errors import EquipoiseError
from equipoise.storage.location import require_http_url


def require_service_url(url: str) -> None:
    """Refuse a URL of a service that has a password, another scheme than HTTP, no host, or an impossible port."""
    require_http_url("--service", url, "http://127.0.0.1:8000")


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
