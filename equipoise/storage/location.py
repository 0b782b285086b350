"""What a location may be: a path of this disk, or a URL of an object store that holds no secret.

Records, replies and logs repeat locations, so a URL with credentials in it is refused before anything else is done.
"""

import re
from urllib.parse import unquote

KINDS = ("s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""object stores: a put is atomic there, which all of us lean on"""


def taken_apart(text: str) -> tuple[str, str]:
    """The kind of a URL and the rest, however many slashes are between them; no kind where it is a path."""
    found = re.match(rf"({'|'.join((*KINDS, 'file', 'https?'))}):/*(.*)|(.*?)://(.*)", text, re.DOTALL)
    return (found[1] or found[3] or "", found[2] or found[4] or "") if found else ("", text)


def shown(kind: str) -> str:
    """A URL's kind, where it can be told: people put odd things before the slashes."""
    last = kind.rpartition("::")[2]
    return f"{last}://" if re.fullmatch("[A-Za-z0-9+.-]{1,12}", last) else "...://"


def require_no_password(text: str) -> None:
    """Refuse a URL that holds one: it would be seen in records, replies and logs, where URLs are told.

    A password may have slashes in it, or be written with %; what is named alone before @ may be a key's name.
    """
    kind, rest = taken_apart(text)
    if not kind:
        return
    rest = unquote(rest)
    named = re.match("[^/@]*@", rest) and not kind.startswith("abfs")  # there it is the bucket that is named so
    if "@" in kind or named or re.match(r"[^/@]*:(?!\d+(/|$))[^@]*@", rest):
        raise ValueError(
            f"{shown(kind)}... has a password in it: give the URL alone and credentials by the environment"
        )


def require_plain(text: str) -> None:
    """Refuse a URL that holds a secret, which records and pages would repeat, or that is none of an object store."""
    require_no_password(text)
    kind, found, rest = text.partition("://")
    if re.match("file:/?(?!/)|file://(?!/)", text):
        raise ValueError(f"{text} is no file of this machine: three slashes follow file:, such as file:///shared/runs")
    if re.match(rf"({'|'.join(KINDS)}):/?(?!/)", text):
        raise ValueError(f"{text} is no URL: two slashes follow its kind, such as s3://bucket/runs/x")
    if not text.isprintable():
        raise ValueError(f"{text!a} is no name: it has signs that cannot be written")
    if not found or kind == "file":
        return
    if "::" in text:
        raise ValueError(f"{shown(kind)}... is a chain of stores: give one, such as s3://bucket/runs/x")
    if "?" in rest or "#" in rest:
        raise ValueError(
            f"{shown(kind)}... has a query, which may be a signature: give the URL alone and credentials apart"
        )
    if kind not in KINDS:
        stores = ", ".join(f"{one}://" for one in KINDS[:3])
        raise ValueError(f"{shown(kind)} is no object store: give {stores} or a folder")
    if not rest.strip("/"):
        raise ValueError(f"{text} names no bucket: give one, such as s3://bucket/runs/x")
