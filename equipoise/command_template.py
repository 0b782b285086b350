"""Template of a user's training command: the settings of a trial are filled into its placeholders."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from equipoise.errors import EquipoiseError

PLACEHOLDERS = ("batch_size", "lr", "seed", "workers", "out")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
SCRIPT_SUFFIXES = {".py", ".sh", ".jl", ".R", ".js", ".rb", ".pl"}


def split_command(command: str) -> list[str]:
    """Split a command into its program and arguments as a shell does; refuse an empty one or an open quote."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise EquipoiseError("option-format", f"cannot parse --command {command!r}: {error}") from None
    if not arguments:
        raise EquipoiseError("option-format", "--command is empty", 'give one such as "python train.py --lr {lr}"')
    return arguments


def find_placeholders(command: str) -> set[str]:
    """Return the names of the placeholders in a command; braces around anything else are left as they are."""
    return {name for name in PLACEHOLDER.findall(command) if name in PLACEHOLDERS}


def find_unknown_placeholders(command: str) -> list[str]:
    """Return the words in braces that are no placeholders and stay as they are; one may be a typing error."""
    return sorted({name for name in PLACEHOLDER.findall(command) if name not in PLACEHOLDERS})


def require_placeholder(command: str, name: str) -> None:
    """Refuse a command without a placeholder that a sweep has to vary."""
    if name in find_placeholders(command):
        return
    unknown = find_unknown_placeholders(command)
    has_instead = f", it has {{{unknown[0]}}}" if unknown else ""
    raise EquipoiseError(
        "option-format",
        f"cannot use --command {command!r}: it has no {{{name}}}{has_instead}",
        f"write {{{name}}} where the command takes its {name.replace('_', ' ')}",
    )


def fill_command(command: str, values: Mapping[str, object]) -> list[str]:
    """Return program and arguments of a command with these values in place of their placeholders."""
    return [
        PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), argument)
        for argument in split_command(command)
    ]


def find_program_name(command: str) -> str:
    """Return the name of the program that a command runs: its script or module rather than the interpreter."""
    words = command.split() or [command]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    scripts = [word for word in words if PurePath(word).suffix in SCRIPT_SUFFIXES]
    return PurePath((scripts or words)[0]).name
