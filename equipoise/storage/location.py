"""What a location may be: a path of this disk, or a URL of an object store that holds no secret.

Records, replies and logs repeat locations, so a URL with credentials in it is refused before anything else is done.
"""

import re
from urllib.parse import unquote

OBJECT_STORE_SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""object stores: a put is atomic there, which all of us lean on"""


def split_scheme(text: str) -> tuple[str, str]:
    """The kind of a URL and the rest, however many slashes are between them; no kind where it is a path."""
    found = re.match(rf"({'|'.join((*OBJECT_STORE_SCHEMES, 'file', 'https?'))}):/*(.*)|(.*?)://(.*)", text, re.DOTALL)
    return (found[1] or found[3] or "", found[2] or found[4] or "") if found else ("", text)


def redact_scheme(scheme: str) -> str:
    """A URL's kind, where it can be told: people put odd things before the slashes."""
    last = scheme.rpartition("::")[2]
    return f"{last}://" if re.fullmatch("[A-Za-z0-9+.-]{1,12}", last) else "...://"


def reject_credentials(location: str) -> None:
    """Refuse a URL that holds one: it would be seen in records, replies and logs, where URLs are told.

    A password may have slashes in it, or be written with %; what is named alone before @ may be a key's name.
    """
    kind, rest = split_scheme(location)
    if not kind:
        return
    rest = unquote(rest)
    named = re.match("[^/@]*@", rest) and not kind.startswith("abfs")  # there it is the bucket that is named so
    if "@" in kind or named or re.match(r"[^/@]*:(?!\d+(/|$))[^@]*@", rest):
        raise ValueError(
            f"{redact_scheme(kind)}... has a password in it: give the URL alone and credentials by the environment"
        )


def validate_location(location: str) -> None:
    """Refuse a URL that holds a secret, which records and pages would repeat, or that is none of an object store."""
    reject_credentials(location)
    kind, found, rest = location.partition("://")
    if re.match("file:/?(?!/)|file://(?!/)", location):
        raise ValueError(
            f"{location} is no file of this machine: three slashes follow file:, such as file:///shared/runs"
        )
    if re.match(rf"({'|'.join(OBJECT_STORE_SCHEMES)}):/?(?!/)", location):
        raise ValueError(f"{location} is no URL: two slashes follow its kind, such as s3://bucket/runs/x")
    if not location.isprintable():
        raise ValueError(f"{location!a} is no name: it has signs that cannot be written")
    if not found or kind == "file":
        return
    if "::" in location:
        raise ValueError(f"{redact_scheme(kind)}... is a chain of stores: give one, such as s3://bucket/runs/x")
    if "?" in rest or "#" in rest:
        raise ValueError(
            f"{redact_scheme(kind)}... has a query, which may be a signature: give the URL alone and credentials apart"
        )
    if kind not in OBJECT_STORE_SCHEMES:
        stores = ", ".join(f"{one}://" for one in OBJECT_STORE_SCHEMES[:3])
        raise ValueError(f"{redact_scheme(kind)} is no object store: give {stores} or a folder")
    if not rest.strip("/"):
        raise ValueError(f"{location} names no bucket: give one, such as s3://bucket/runs/x")
