"""Decode JSON into dataclasses: types, choices and bounds are checked in one place, by msgspec."""

from typing import TypeVar

import msgspec

from equipoise.errors import EquipoiseError

T = TypeVar("T")


def decode_json_value(contents: object, kind: type[T], *, code: str, problem: str, remedy: str = "") -> T:
    """Decode parsed JSON as a `kind`, whose fields say which types and bounds are allowed.

    Keys that are not fields of it are ignored. Anything else that does not fit is refused by one sentence: `problem`,
    followed by the reason with the place in the document.
    """
    try:
        return msgspec.convert(contents, type=kind)
    except msgspec.ValidationError as error:
        raise EquipoiseError(code, f"{problem}: {describe_mismatch(error)}", remedy) from None


def describe_mismatch(error: msgspec.ValidationError) -> str:
    """Return the reason of a validation error, with the place where it occurred in front."""
    reason, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`").removeprefix(".")
    return f"{place}: {reason[0].lower()}{reason[1:]}" if place else f"{reason[0].lower()}{reason[1:]}"
