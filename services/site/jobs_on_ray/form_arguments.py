"""Arguments of a command from the values of its form, built as a list and never as a text."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from equipoise.errors import EquipoiseError
from services.site.jobs_on_ray.command_forms import RESULT_FLAGS, CommandForm, FormField
from services.site.result_paths import resolve_result_path

MAX_VALUE_LENGTH = 4000  # characters
NEGATIVE_NUMBER = re.compile(r"-[.\d]\S*")
SWITCH_ON, SWITCH_OFF = "on", "off"

FormValues = Mapping[str, str]


def build_arguments(form: CommandForm, values: FormValues, results: Path) -> list[str]:
    """Return the arguments that the values of a form stand for; what is not given is left to the command."""
    known = {field.name for field in form.fields}
    if unknown := [name for name in values if name not in known]:
        raise EquipoiseError("option-unknown", f"unknown option --{unknown[0][:60]}", f"see equipoise {form.command}")
    arguments: list[str] = []
    for field in form.fields:
        if text := values.get(field.name, "").strip():
            arguments += build_option_arguments(field, text, results)
    return arguments


def build_option_arguments(field: FormField, text: str, results: Path) -> list[str]:
    """Return the arguments of one option."""
    flag = f"--{field.name}"
    if len(text) > MAX_VALUE_LENGTH or "\0" in text:
        raise EquipoiseError("option-format", f"cannot use the value of {flag}: it is too long or holds a null byte")
    if field.control == "switch":
        is_on = text != SWITCH_OFF
        return [] if is_on == field.option.default else [flag if is_on else field.option.off_flag]
    if field.option.takes_several:
        return build_several(flag, text)
    if field.name == "out":
        return [flag, str(resolve_result_path(results, text, must_exist=False).absolute())]
    if field.name in RESULT_FLAGS:
        text = locate_result(text, results, field.name)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def build_several(flag: str, text: str) -> list[str]:
    """Return the arguments of an option that takes several values, which are separated by spaces."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise EquipoiseError("option-format", f"cannot parse the values of {flag}: {error}") from None
    for part in parts:
        if part.startswith("-") and not NEGATIVE_NUMBER.fullmatch(part):
            raise EquipoiseError(
                "option-format", f"cannot use {part[:60]!r} as a value of {flag}: it begins with a dash"
            )
    return [flag, *parts] if parts else []


def locate_result(text: str, results: Path, name: str) -> str:
    """Return the path of a result that is named relative to the results folder; other paths and URLs as they are."""
    if "://" in text or Path(text).is_absolute():
        return text
    try:
        path = resolve_result_path(results, text, must_exist=name == "init-from")
    except EquipoiseError:
        if name != "init-from":
            raise
        return text  # such as torchvision
    return str(path.absolute())


def format_command_line(command: str, arguments: Sequence[str], folder: Path | None = None) -> str:
    """Return the command as one would type it in a folder; paths below the folder are relative to it."""
    folder = Path.cwd() if folder is None else folder
    return shlex.join(["equipoise", command, *(shorten_path(argument, folder) for argument in arguments)])


def shorten_path(argument: str, folder: Path) -> str:
    """Return an argument, relative to a folder if it is an absolute path below it."""
    prefix = f"{folder}{os.sep}"
    return argument.removeprefix(prefix) if folder != Path("/") and argument.startswith(prefix) else argument


def read_out_folder(arguments: Sequence[str]) -> str:
    """Return the folder that a job writes to, as in its arguments; empty if it writes to none."""
    pairs = pairwise(arguments)
    return next((value for flag, value in pairs if flag == "--out"), "")
