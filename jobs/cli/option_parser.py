"""Parse the options of a command: an unknown option is refused with the one that was probably meant."""

import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TypeVar

import tyro

from equipoise.errors import EquipoiseError

Options = TypeVar("Options")
# help puts the names of an option at the start of a line, behind at most a frame; texts on them stand further right
OPTION_NAMES = re.compile(r"^[^\w-]{0,4}(?:-h, )?(--[a-z][\w.-]*(?:, --[a-z][\w.-]*)*)", re.MULTILINE)

TYRO_OPTIONS = "--tyro-"  # of shell completion, which the help does not show


def parse_options(options_class: type[Options], arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line, or `arguments`, into an options class; refuse an option that it does not have."""
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    parse: Callable[..., Options] = partial(tyro.cli, options_class, prog=format_command_name())
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return parse(args=tokens)
    require_known_options(tokens, list_option_names(options_class))
    return parse(args=tokens)  # prints the help, or what else is wrong


def format_command_name() -> str:
    """Return the command as a user types it: `python -m` leaves the path of a file, which a job has somewhere else."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not Path(sys.argv[0]).is_absolute():
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def list_option_names(options_class: type) -> list[str]:
    """Return the names of all options as the help of an options class shows them."""
    help_text = io.StringIO()
    with suppress(SystemExit), redirect_stdout(help_text):
        tyro.cli(options_class, args=["--help"])
    return [name for names in OPTION_NAMES.findall(help_text.getvalue()) for name in names.split(", ")]


def require_known_options(tokens: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the first option that is not known, with the most similar one that is."""
    for token in tokens:
        name = token.partition("=")[0]
        is_long = name.startswith("--") and name != "--" and not name.startswith(TYRO_OPTIONS)
        if is_long and name.replace("_", "-") not in known:
            similar = get_close_matches(name, known, 1)
            remedy = f"did you mean {similar[0]}?" if similar else f"{format_command_name()} --help lists them"
            raise EquipoiseError("option-unknown", f"unknown option {name}", remedy)
