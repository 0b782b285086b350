"""Numbers in queries and forms, which are text until they are parsed."""

from equipoise.errors import EquipoiseError


def parse_whole_number(name: str, text: str, low: int, high: int) -> int:
    """Parse a whole number between two others; refuse anything else by the name of its field."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise EquipoiseError("option-range", f"cannot use {name}={text[:40]}: it must be a number from {low} to {high}")
    return int(text)
