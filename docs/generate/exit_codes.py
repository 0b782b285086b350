"""Page of exit statuses and error codes."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise

from docs.generate.cli import parse_exit_statuses
from docs.generate.markdown import MISSING, build_page, format_code, format_table, start_sentence
from equipoise import errors
from equipoise.command_line import CLOSED_PIPE, FAILED, REFUSED, STOPPED
from equipoise.errors import ERROR_CODES
from jobs.cli.main import COMMAND_MODULES

COMMON_STATUSES = {
    0: "The command did what it was asked to do.",
    FAILED: "Something outside of the command failed: training, a worker, a full disk, or a service or object store"
    " that did not answer. A bug of Equipoise also ends with 1, and with a traceback instead of one sentence.",
    REFUSED: "A mistake in the options, files or environment, described on stderr: in one sentence with an error code.",
    STOPPED: "Ctrl-C or SIGTERM ended the command.",
    CLOSED_PIPE: "The program that read the output, such as `head`, closed it.",
}
"""statuses that mean the same for every command"""
OWN_STATUSES = ("0", "1", "3", "4")
COMMANDS_TEXT = """\
`2`, `141` and `143` mean for each command what they mean for all, except that `equipoise local-cluster` runs until
Ctrl-C and then ends with 0, and `equipoise validate-cluster` prints one sentence for each problem of a file and ends
with 2. `equipoise serve` ends with 2 if an argument is wrong or a file cannot be used, before anything is served;
afterwards its status is that of Ray's `serve run`."""
STATUS_TEXT = """\
A script can rely on these numbers. 3 and 4 are results, not failures: `equipoise check` and `equipoise adapt` use them
for what they found."""
CODES_TEXT = """\
The sentence of an error with status 2 ends with a code in brackets; so does that of `disk-full` and
`service-unavailable`, with status 1:

```text
error: cannot resume runs/x: it holds another trial (lr is 0.05, requested 0.1); choose another --out [run-mismatch]
```

The sentences may change between versions, the codes and their meaning do not. In Python the same errors are
[`EquipoiseError`](python-api.md#equipoiseerror), whose `code` is one of these."""


def build_exit_codes_page() -> str:
    """Build the page of statuses and codes, docs/reference/exit-codes.md."""
    rows = [format_command_row(name) for name in COMMAND_MODULES]
    return build_page(
        "Exit statuses and error codes",
        STATUS_TEXT,
        "## Every command",
        format_table(("status", "meaning"), [(format_code(str(key)), text) for key, text in COMMON_STATUSES.items()]),
        "## By command",
        COMMANDS_TEXT,
        format_table(("command", *map(format_code, OWN_STATUSES)), rows),
        "## Error codes",
        CODES_TEXT,
        *(block for title, codes in group_error_codes() for block in (f"### {title}", format_codes_table(codes))),
    )


def format_command_row(name: str) -> list[str]:
    """Format what a command means by each of the statuses that commands give a meaning of their own."""
    meanings = parse_exit_statuses(name)
    return [format_code(name), *(start_sentence(meanings.get(int(status), "")) or MISSING for status in OWN_STATUSES)]


def group_error_codes() -> Iterator[tuple[str, list[str]]]:
    """Yield the error codes below the comments that group them in the source."""
    source, _ = inspect.getsourcelines(errors)
    codes_by_line = {
        key.lineno: str(key.value)
        for node in ast.walk(ast.parse("".join(source)))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    titles = {number: line.strip() for number, line in enumerate(source, 1) if line.startswith("    # ")}
    for (start, title), (end, _) in pairwise([*titles.items(), (len(source) + 1, "")]):
        codes = [code for number, code in codes_by_line.items() if start < number < end]
        if codes:
            yield start_sentence(title.removeprefix("# ")).removesuffix("."), codes


def format_codes_table(codes: list[str]) -> str:
    """Format error codes with their meaning."""
    return format_table(("code", "meaning"), [(format_code(code), start_sentence(ERROR_CODES[code])) for code in codes])
