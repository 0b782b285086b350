"""Parts of a Markdown page: headings, tables, and code in cells."""

import re
from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make docs-reference` from the code: change the texts there, not here. -->"
CODE_WORDS = re.compile(
    r"(?<![\w/.-])(?:--[a-z][a-z-]*|[\w*-]+\.(?:json\.gz|json|jsonl|csv|html|md|npz|onnx|safetensors)\b|module:attribute"
    r"|[A-Z]+(?:[:/][A-Z]+)+(?:\.png)?|s3://[\w/.*]*[\w*]|https?://[\w:./]+\w)"
)
"""options, files, MIN:MAX and URLs"""
MISSING = "-"
"""text of a cell that has nothing to say"""


def join_blocks(blocks: Iterable[str]) -> str:
    """Join the blocks of a page with an empty line between them, leaving out empty blocks."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"


def build_page(title: str, *blocks: str) -> str:
    """Build a page from its title and its blocks, with a notice that it is generated."""
    return join_blocks([f"# {title}", NOTICE, *blocks])


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; an empty string if it has no rows."""
    lines = [f"| {' | '.join(escape_cell(cell) for cell in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(header)} |", f"|{'|'.join('---' for _ in header)}|", *lines])


def escape_cell(text: str) -> str:
    """Make a text fit into one cell: on one line, and with its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def format_code(text: str) -> str:
    """Format a text as inline code."""
    return f"`{text}`"


def format_fence(language: str, text: str, skip: str = "") -> str:
    """Format lines as a block of code; `skip` says why the tests of the documentation do not run it."""
    attribute = f' skip="{skip}"' if skip else ""
    return f"```{language}{attribute}\n{text}\n```"


def start_sentence(text: str) -> str:
    """Return a text as a sentence: with a capital first letter, if it begins with a word, and a full stop."""
    text = " ".join(text.split())
    if not text:
        return ""
    is_word = text.split()[0].rstrip(",;:").replace("-", "").isalpha()  # and not a name such as record.json
    capital = text[0].upper() + text[1:] if is_word else text
    return mark_code(capital if capital.endswith((".", "?", "!")) else f"{capital}.")


def mark_code(text: str) -> str:
    """Format as code the names of options and files in a text that does not mark them itself."""
    parts = text.split("`")
    return "`".join(CODE_WORDS.sub(r"`\g<0>`", part) if index % 2 == 0 else part for index, part in enumerate(parts))


def make_anchor(heading: str) -> str:
    """Return the anchor that a heading gets: lower case, words joined by hyphens, without punctuation."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.strip().replace(" ", "-")
