"""Validation of locations: a path on this machine, or the URL of an object store without a secret in it.

Records, replies and logs repeat locations, so a URL with credentials in it is refused before anything else.
"""

import re
from urllib.parse import unquote, urlsplit

from equipoise.errors import EquipoiseError

OBJECT_STORE_SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""URL schemes of object stores in which a put is atomic, as all readers and writers here assume"""
LASTING_STORES = ", ".join(f"{scheme}://" for scheme in OBJECT_STORE_SCHEMES if scheme != "memory")
"""stores to choose from, for messages"""


def split_scheme(text: str) -> tuple[str, str]:
    """Split a URL into its scheme and the rest, however many slashes separate them; a path has an empty scheme."""
    match = re.match(rf"({'|'.join((*OBJECT_STORE_SCHEMES, 'file', 'https?'))}):/*(.*)|(.*?)://(.*)", text, re.DOTALL)
    return (match[1] or match[3] or "", match[2] or match[4] or "") if match else ("", text)


def redact_scheme(scheme: str) -> str:
    """Return the scheme for a message, or `...://` where the text before the slashes may hold a secret."""
    last = scheme.rpartition("::")[2]
    return f"{last}://" if re.fullmatch("[A-Za-z0-9+.-]{1,12}", last) else "...://"


def reject_credentials(location: str) -> None:
    """Refuse a URL with credentials in it, since records, replies and logs repeat URLs.

    A password may contain slashes or percent escapes; a single name before @ may be the name of a key.
    """
    scheme, rest = split_scheme(location)
    if not scheme:
        return
    rest = unquote(rest)
    has_user = re.match("[^/@]*@", rest) and not scheme.startswith("abfs")  # abfs://container@account is no user
    if "@" in scheme or has_user or re.match(r"[^/@]*:(?!\d+(/|$))[^@]*@", rest):
        raise EquipoiseError(
            "url-secret",
            f"{redact_scheme(scheme)}... has a password in it",
            "give the URL alone, and credentials in the environment",
        )


def validate_location(location: str) -> None:
    """Refuse a URL that contains a secret, is malformed, or does not belong to a supported object store."""
    reject_credentials(location)
    scheme, separator, rest = location.partition("://")
    if re.match("file:/?(?!/)|file://(?!/)", location):
        raise EquipoiseError(
            "url-format",
            f"cannot use {location}: a file URL has three slashes and no host, such as file:///shared/runs",
        )
    if re.match(rf"({'|'.join(OBJECT_STORE_SCHEMES)}):/?(?!/)", location):
        raise EquipoiseError(
            "url-format", f"cannot use {location}: two slashes must follow the scheme, such as s3://bucket/runs/x"
        )
    if not location.isprintable():
        raise EquipoiseError("url-format", f"cannot use {location!a}: it contains unprintable characters")
    if not separator or scheme == "file":
        return
    if "::" in location:
        raise EquipoiseError(
            "store-unsupported",
            f"{redact_scheme(scheme)}... is a chain of stores",
            "give a single one, such as s3://bucket/runs/x",
        )
    if "?" in rest or "#" in rest:
        raise EquipoiseError(
            "url-secret",
            f"{redact_scheme(scheme)}... has a query, which may hold a signature",
            "give the URL alone, and credentials in the environment",
        )
    if scheme not in OBJECT_STORE_SCHEMES:
        raise EquipoiseError(
            "store-unsupported",
            f"{redact_scheme(scheme)} is not a supported object store: give {LASTING_STORES} or a folder",
        )
    if not rest.strip("/"):
        raise EquipoiseError(
            "url-format", f"cannot use {location}: it names no bucket", "give one, such as s3://bucket/runs/x"
        )


def require_http_url(name: str, url: str, example: str) -> None:
    """Refuse the URL of a web server with a password, another scheme than HTTP, no host, or an impossible port.

    `name` is the option that it was given with, and `example` a good one.
    """
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
        raise EquipoiseError("url-format", f"cannot use {name} {url!r}: {reason}", f"give one such as {example}")


def require_lasting_store(location: str) -> None:
    """Refuse memory://, which is forgotten when its process ends: a store for tests, not for the files of a command."""
    if location.startswith("memory:"):
        raise EquipoiseError(
            "store-unsupported",
            f"cannot use {location}: memory:// forgets everything when the command ends",
            f"give {LASTING_STORES} or a folder",
        )
