"""Numbers as people read them."""

import math


def number(value: float | None) -> str:
    """To three digits, without powers of ten; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
