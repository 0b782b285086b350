"""Amounts of memory as people write them, such as 16GB, and as messages show them."""

import re

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number

BYTES_PER_UNIT = {
    unit: base**power
    for base, infix in ((1000, ""), (1024, "i"))
    for power, letter in enumerate("kmgt", start=1)
    for unit in (f"{letter}{infix}b",)
}
"""bytes of each unit, in small letters: 1 GB is 1e9 bytes, and 1 GiB 1024^3"""


def parse_memory(flag: str, text: str) -> float:
    """Parse an amount of memory such as `16GB` or `1.5 GiB` and return it in bytes."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+)", text.strip().lower())
    size = float(match[1]) * BYTES_PER_UNIT.get(match[2], 0) if match else 0.0
    if size < 1:
        raise EquipoiseError(
            "option-format",
            f"{flag} must be an amount of memory with its unit, such as 16GB or 512MiB, got {text[:40]!a}",
        )
    return size


def format_memory(size: float) -> str:
    """Format a number of bytes in decimal units to three digits, such as '16 GB'."""
    unit, divisor = next(
        ((unit, divisor) for unit, divisor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if size >= divisor), ("kB", 1e3)
    )
    return f"{format_number(size / divisor)} {unit}"


def explain_excess(needed_bytes: float, limit_bytes: float) -> str:
    """Say how much memory something needs, and how much there is."""
    return f"needs {format_memory(needed_bytes)} of {format_memory(limit_bytes)} a worker"
