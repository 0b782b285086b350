"""Decode JSON into dataclasses: types, choices and bounds are checked in one place, by msgspec."""

import json
from typing import TypeVar

import msgspec

from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import reject_nan

DecodedT = TypeVar("DecodedT")


def decode_json_bytes(content: bytes, kind: type[DecodedT], *, code: str, problem: str, remedy: str = "") -> DecodedT:
    """Decode the JSON in a file's content as a `kind`, like `decode_json_value`; refuse what is not valid JSON."""
    try:
        contents = json.loads(content, parse_constant=reject_nan)
    except (ValueError, RecursionError) as error:
        raise EquipoiseError(code, f"{problem}: it is not valid JSON ({error})", remedy) from None
    return decode_json_value(contents, kind, code=code, problem=problem, remedy=remedy)


def decode_json_value(contents: object, kind: type[DecodedT], *, code: str, problem: str, remedy: str = "") -> DecodedT:
    """Decode parsed JSON as a `kind`, whose fields say which types and bounds are allowed.

    Keys that are not fields of it are ignored. Anything else that does not fit is refused by one sentence: `problem`,
    followed by the reason with the place in the document.
    """
    try:
        return msgspec.convert(contents, type=kind, str_keys=True)  # JSON has no other keys than strings
    except msgspec.ValidationError as error:
        raise EquipoiseError(code, f"{problem}: {describe_mismatch(error)}", remedy) from None
    except UnicodeEncodeError as error:  # a text with half a surrogate pair, which json reads and msgspec does not
        raise EquipoiseError(code, f"{problem}: a text in it is not valid Unicode ({error.reason})", remedy) from None


def describe_mismatch(error: msgspec.ValidationError) -> str:
    """Return the reason of a validation error, with the place where it occurred in front."""
    reason, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`").removeprefix(".")
    return f"{place}: {reason[0].lower()}{reason[1:]}" if place else f"{reason[0].lower()}{reason[1:]}"
