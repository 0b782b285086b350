"""Options that a function call gives: Python values, converted to the types that the command parses from texts."""

from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from equipoise.errors import EquipoiseError


def convert_option(name: str, value: Any, kind: Any) -> Any:
    """Return the value of an option as its type, with numbers and arrays of NumPy as Python's; refuse another type."""
    plain = value.tolist() if hasattr(value, "tolist") else str(value) if isinstance(value, Path) else value
    if (choices := list_choices(kind)) and plain not in choices:
        names = ", ".join(str(choice) for choice in choices)
        raise EquipoiseError("option-choice", f"cannot use {plain!r:.80} as {name}: it must be one of {names}")
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at")[0].replace("`", "").replace("array", "list").replace("null", "None")
        raise EquipoiseError(
            "option-format", f"cannot use {value!r:.80} as {name}: {reason[:1].lower()}{reason[1:]}"
        ) from None


def list_choices(kind: Any) -> list[object]:
    """List the names that a type allows, and None if it may be left out; nothing for other types."""
    choices = [name for part in (kind, *get_args(kind)) if get_origin(part) is Literal for name in get_args(part)]
    return [*choices, None] if choices and NoneType in get_args(kind) else choices


def list_values(value: Any) -> Any:
    """Return several values as a list, and a single number as a list of one; anything else as it is."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(plain, int | float):
        return [plain]
    return list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str | dict) else plain
