"""Filters of the table of experiments: terms such as `lr>0.05 workload=digits tag=baseline`, as a condition of SQL.

Values are bound, never put into the text of a query. All terms must hold.
"""

import math
import re
import shlex
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from equipoise.errors import EquipoiseError
from services.site.experiments.index_columns import COLUMN_BY_NAME

MAX_FILTER_LENGTH, MAX_TERMS = 500, 20
TERM = re.compile(r"([A-Za-z_]+)\s*(<=|>=|!=|=|<|>|~)\s*(.*)", re.DOTALL)
COLUMN_ALIASES = {"batch": "batch_size", "experiment": "path", "outcome": "status", "time": "seconds", "name": "path"}
"""other words for columns, as the page shows them"""
SEARCHED_COLUMNS = ("path", "workload", "model", "status", "problem")
"""columns that a word without a comparison is looked for in"""
SMALL_LETTERS = str.maketrans(ascii_uppercase, ascii_lowercase)
REMEDY = "write terms such as lr>0.05 workload=digits status~failed tag=baseline, or words of a name"


@dataclass(frozen=True)
class Condition:
    """Condition of SQL with its values."""

    text: str
    values: tuple[str | float, ...] = ()


def parse_filter(text: str) -> Condition:
    """Parse a filter; an empty one holds for all rows. Refuse what it cannot mean."""
    if len(text) > MAX_FILTER_LENGTH:
        raise EquipoiseError(
            "option-format", f"cannot filter: the filter has more than {MAX_FILTER_LENGTH} characters", REMEDY
        )
    try:
        terms = shlex.split(text)
    except ValueError:
        raise EquipoiseError("option-format", "cannot filter: a quotation mark is not closed", REMEDY) from None
    if len(terms) > MAX_TERMS:
        raise EquipoiseError("option-format", f"cannot filter by more than {MAX_TERMS} terms", REMEDY)
    conditions = [parse_term(term) for term in terms]
    joined = " AND ".join(f"({condition.text})" for condition in conditions) or "1"
    return Condition(joined, tuple(value for condition in conditions for value in condition.values))


def parse_term(term: str) -> Condition:
    """Parse one term: a comparison, or a word that must occur in a name."""
    match = TERM.fullmatch(term)
    if match is None:
        return Condition(" OR ".join(f"instr(lower({name}), ?)" for name in SEARCHED_COLUMNS), (lower_ascii(term),) * 5)
    name, operator, value = match[1].lower(), match[2], match[3]
    name = COLUMN_ALIASES.get(name, name)
    if name == "tag":
        return parse_tag_term(term, operator, value)
    column = COLUMN_BY_NAME.get(name)
    if column is None:
        names = ", ".join([*COLUMN_BY_NAME, "tag"])
        problem = f"cannot filter by {term[:60]!r}: there is no column {name[:40]!r}"
        raise EquipoiseError("option-choice", problem, f"its columns are {names}")
    if operator == "~":
        return Condition(f"instr(lower({name}), ?)", (lower_ascii(value),))
    if not column.is_number:
        compared = f"replace({name}, '_', ' ')" if name == "status" else name
        return Condition(f"{compared} {operator} ?", (value.replace("_", " ") if name == "status" else value,))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise EquipoiseError("option-format", f"cannot filter by {term[:60]!r}: {value[:40]!r} is not a number", REMEDY)
    return Condition(f"{name} {operator} ?", (number,))


def lower_ascii(text: str) -> str:
    """Return a text with small letters where SQLite's `lower` has them: other letters than those of ASCII stay."""
    return text.translate(SMALL_LETTERS)


def parse_tag_term(term: str, operator: str, value: str) -> Condition:
    """Parse a term on tags, which an experiment may have several of."""
    if operator not in ("=", "!="):
        raise EquipoiseError("option-format", f"cannot filter by {term[:60]!r}: tags are compared by = or !=", REMEDY)
    membership = "IN" if operator == "=" else "NOT IN"
    return Condition(f"path {membership} (SELECT path FROM notes.tags WHERE tag = ?)", (value,))  # noqa: S608
