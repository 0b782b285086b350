"""Parse the options of a command: a mistake is refused in one sentence, with what was probably meant."""

import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

import tyro
from tyro._errors import (  # its documented hook for mistakes, not yet public; tyro is pinned
    BadValue,
    InstantiationFailure,
    InvalidChoice,
    MissingArgs,
    ParseErrorEvent,
    UnrecognizedArgs,
    on_parse_error,
)

from equipoise.command_line import format_command_name
from equipoise.errors import EquipoiseError

Options = TypeVar("Options")
# help puts the names of an option at the start of a line, behind at most a frame; texts on them stand further right
OPTION_NAMES = re.compile(r"^[^\w-]{0,4}(?:-h, )?(--[a-z][\w.-]*(?:, --[a-z][\w.-]*)*)", re.MULTILINE)

NUMBER_ERRORS = {
    "invalid literal for int() with base 10: ": "a whole number",
    "could not convert string to float: ": "a number",
}
"""beginnings of Python's messages, and what was expected"""
LIST_ERROR = "Could not find valid parse for arguments: "
"""beginning of tyro's message about an option of several values"""
LIST_KINDS = {int: "whole numbers", float: "numbers"}
RELATED_OPTIONS = {
    "--exchange": ("--sync", "--compression"),
    "--exchanges": ("--sync", "--compression"),
    "--sync": ("--exchanges",),
    "--compression": ("--exchanges",),
}
"""options of other commands, and those that ask for the same in a command without them"""
TYRO_OPTIONS = "--tyro-"  # of shell completion, which the help does not show


def parse_options(
    options_class: type[Options], arguments: Sequence[str] | None = None, command_name: str = ""
) -> Options:
    """Parse the command line, or `arguments`, into an options class; refuse a mistake in one sentence.

    `command_name` is how remedies call the command, by default as the user has typed it.
    """
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    command_name = command_name or format_command_name()

    def refuse_mistake(event: ParseErrorEvent) -> None:
        require_known_options(tokens, list_option_names(options_class), command_name)
        raise describe_mistake(event, command_name)

    with on_parse_error(refuse_mistake):
        return tyro.cli(options_class, prog=command_name, args=tokens)


def describe_mistake(event: ParseErrorEvent, command_name: str) -> EquipoiseError:
    """Return the error for what tyro could not parse: our own one where an option refused its value."""
    if (cause := find_own_error(sys.exception())) is not None:
        argument = getattr(event, "argument", None)
        name = option_name(argument) if argument is not None else ""
        return cause if name.lstrip("-") in cause.problem else cause.within(name)
    help_hint = f"{command_name} --help lists the options"
    match event:
        case MissingArgs(missing_arguments=missing):
            names = ", ".join(option_name(entry.arg) for entry in missing)
            return EquipoiseError("option-missing", f"missing: {names}", help_hint)
        case InvalidChoice(argument=argument, value=value, choices=choices):
            names = ", ".join(name for name in sorted(choices) if name != "None")  # which is for options not given
            problem = f"{option_name(argument)} must be one of {names}, got {value!r}"
            return EquipoiseError("option-choice", problem)
        case BadValue(argument=argument):
            return EquipoiseError("option-missing", f"{option_name(argument)} needs a value", help_hint)
        case InstantiationFailure(message=message, argument=argument) if argument is not None:
            reason = describe_bad_list(message, argument.field.type) or describe_bad_value(message)
            return EquipoiseError("option-format", f"{option_name(argument)} {reason}")
        case UnrecognizedArgs(tokens=unknown):
            return EquipoiseError("option-unknown", f"unexpected argument {unknown[0]!r}", help_hint)
    reason = str(getattr(event, "message", "options that do not fit together"))
    return EquipoiseError("option-format", f"cannot parse the options: {reason}", help_hint)


def describe_bad_value(message: str) -> str:
    """Return what is wrong with a value, from Python's message about a text that is no number.

    Of an option that may be left out, tyro lists the messages of all its types.
    """
    for beginning, kind in NUMBER_ERRORS.items():
        _, found, rest = message.partition(beginning)
        if found:
            return f"must be {kind}, got {rest}"
    return f"cannot be parsed: {message}"


def describe_bad_list(message: str, kind: Any) -> str:
    """Return what is wrong with the values of an option that takes several numbers; empty for any other option."""
    _, found, values = message.partition(LIST_ERROR)
    expected = [LIST_KINDS[number] for number in LIST_KINDS if number in get_args(kind)]
    return f"must be {expected[0]}, got {values.strip('[]')}" if found and expected else ""


def option_name(argument: Any) -> str:
    """Return the name of an option as a user types it, or that of a positional argument."""
    return str((*argument.lowered.name_or_flags, argument.lowered.metavar)[0])


def find_own_error(error: BaseException | None) -> EquipoiseError | None:
    """Return the error of ours behind an error of tyro's, or None."""
    while error is not None and not isinstance(error, EquipoiseError):
        error = error.__cause__ or error.__context__
    return error


def list_option_names(options_class: type) -> list[str]:
    """Return the names of all options as the help of an options class shows them."""
    help_text = io.StringIO()
    with suppress(SystemExit), redirect_stdout(help_text):
        tyro.cli(options_class, args=["--help"])
    return [name for names in OPTION_NAMES.findall(help_text.getvalue()) for name in names.split(", ")]


def require_known_options(tokens: Sequence[str], known: Sequence[str], command_name: str = "") -> None:
    """Refuse the first option that is not known, with the most similar one that is."""
    for token in tokens:
        name = token.partition("=")[0]
        is_long = name.startswith("--") and name != "--" and not name.startswith(TYRO_OPTIONS)
        if is_long and name.replace("_", "-") not in known:
            related = [option for option in RELATED_OPTIONS.get(name, ()) if option in known]
            similar = related or get_close_matches(name, known, 1)
            remedy = (
                f"did you mean {' or '.join(similar)}?"
                if similar
                else f"{command_name or format_command_name()} --help lists them"
            )
            raise EquipoiseError("option-unknown", f"unknown option {name}", remedy)
