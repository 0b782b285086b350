"""Numbers, counts and errors formatted for people."""

import math


def format_number(value: float | None, digits: int = 3) -> str:
    """Format a number to at least these digits, a large one without power of ten; a dash for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:,.{digits}g}"


def format_range(low: float | None, high: float | None, digits: int = 3) -> str:
    """Format the ends of an interval, such as '3.8 to 4,120'."""
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def format_rounded(value: float) -> str:
    """Format a rough number of at least 1 with two digits that count, such as '13,000'."""
    return f"{float(f'{value:.2g}'):,.0f}"


def format_share(share: float | None) -> str:
    """Format a share of a whole as a percentage without decimals; a dash for None."""
    return "-" if share is None else f"{share:.0%}"


def format_units(examples: float, unit: str, units_per_example: int) -> str:
    """Return examples in their other unit, in brackets after a space, such as ' (1,664 tokens)'.

    Return an empty string if examples are the unit themselves.
    """
    return "" if unit == "examples" else f" ({examples * units_per_example:,.0f} {unit})"


def make_printable(text: str, keep: str = "") -> str:
    """Escape what a terminal would act on rather than show, such as control characters, except those in `keep`.

    Names of files and texts in them may hold such characters; with a line break one error would look like two.
    """
    return "".join(char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in text)


def pluralize(count: int, noun: str) -> str:
    """Format a count with its noun, such as '1 record' or '2,000 records'."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def first_error_line(error: BaseException, otherwise: str = "") -> str:
    """Return the first line of an error's message; if it is empty, `otherwise` or the error's type."""
    return next(iter(str(error).strip().splitlines()), otherwise or type(error).__name__)


def last_error_line(error: BaseException, otherwise: str = "") -> str:
    """Return the last line of an error's message; if it is empty, `otherwise` or the error's type."""
    return next(reversed(str(error).strip().splitlines()), otherwise or type(error).__name__).strip()


def capitalize_first(text: str) -> str:
    """Return a text with a capital first letter; the other letters stay, unlike with `str.capitalize`."""
    return text[:1].upper() + text[1:]


def format_bytes(size: float) -> str:
    """Format a number of bytes to three digits in the unit that reads best, such as '64 KiB'."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while size >= 1024 and power < len(units) - 1:
        size, power = size / 1024, power + 1
    return f"{format_number(size)} {units[power]}"


def choose_energy_unit(joules: float) -> tuple[float, str]:
    """Return the unit in which an energy reads best, with its size in joules."""
    return next(((size, unit) for size, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")) if joules >= size), (1.0, "J"))


def format_joules(joules: float) -> str:
    """Format an energy to three digits in the unit that reads best, such as '12.3 kJ'."""
    size, unit = choose_energy_unit(joules)
    return f"{format_number(joules / size)} {unit}"


def format_bit_rate(bytes_a_second: float) -> str:
    """Format a rate given in bytes per second in bits, as networks are sold, such as '200 Mbit/s'."""
    bits = 8 * bytes_a_second
    size, unit = next(
        ((size, unit) for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")) if bits >= size), (1e3, "kbit/s")
    )
    return f"{format_number(bits / size)} {unit}"


def format_flag(option_name: str) -> str:
    """Format the name of an option as it stands on the command line."""
    return f"--{option_name.replace('_', '-')}"
