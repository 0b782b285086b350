"""Numbers, counts and errors as people read them."""

import math


def format_number(value: float | None) -> str:
    """To three digits, without powers of ten; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: '1 record', '2,000 records'."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def first_error_line(error: BaseException, otherwise: str = "") -> str:
    """Return the first line of an error's message; without one `otherwise`, or else the error's type."""
    return next(iter(str(error).strip().splitlines()), otherwise or type(error).__name__)
