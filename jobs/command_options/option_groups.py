"""Options of a command as data, read from its options class in the order of its help."""

import importlib
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro

from jobs.cli.main import COMMAND_MODULES
from jobs.command_options.class_fields import REQUIRED, list_fields


@dataclass(frozen=True, kw_only=True)
class CommandOption:
    """One option of a command."""

    flag: str
    """as typed, such as --batch-size; the name in capitals where it is given by its position"""
    annotation: Any
    """type of the field, with tyro's marks"""
    default: Any
    """value, or REQUIRED"""
    doc: str
    is_positional: bool = False

    @property
    def is_required(self) -> bool:
        """Whether the command cannot do without it."""
        return self.default is REQUIRED

    @property
    def is_switch(self) -> bool:
        """Whether it is switched on by `--name` and off by `--no-name`."""
        return strip_marks(self.annotation) is bool

    @property
    def off_flag(self) -> str:
        """How a switch is switched off, such as --no-drift."""
        prefix, _, name = self.flag.removeprefix("--").rpartition(".")
        return f"--{prefix}{'.' * bool(prefix)}no-{name}"

    @property
    def takes_several(self) -> bool:
        """Whether it takes several values, one after the other."""
        return get_origin(strip_marks(self.annotation)) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that it takes; empty if it takes others too."""
        kind = strip_marks(self.annotation)
        return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


@dataclass(frozen=True, kw_only=True)
class CommandOptionGroup:
    """Options that the help shows in one frame."""

    doc: str
    """what they have in common; empty for the options of the command itself"""
    options: list[CommandOption] = field(default_factory=list)


def find_options_class(command: str) -> Any:
    """Return the options class of a command: the class of its module whose name ends with Options."""
    module = importlib.import_module(COMMAND_MODULES[command])
    [options_class] = [
        value
        for name, value in vars(module).items()
        if name.endswith("Options") and getattr(value, "__module__", "") == module.__name__
    ]
    return options_class


def list_option_groups(options_class: Any, prefix: str = "", doc: str = "") -> list[CommandOptionGroup]:
    """List the options of a class as one group, followed by the groups of the dataclasses in its fields."""
    own, nested = CommandOptionGroup(doc=doc), []
    for option in list_fields(options_class):
        marks = list_marks(option.annotation)
        kind = get_args(option.annotation)[0] if marks else option.annotation
        if tyro.conf.Suppress in marks:
            continue
        if is_dataclass(kind):
            inner = "" if tyro.conf.OmitArgPrefixes in marks else f"{prefix}{dash_name(option.name)}."
            nested += list_option_groups(kind, inner, option.doc or str(kind.__doc__).partition("\n")[0])
        else:
            own.options.append(build_option(option.name, option.annotation, option.default, option.doc, prefix))
    return [own, *nested]


def build_option(name: str, annotation: Any, default: Any, doc: str, prefix: str = "") -> CommandOption:
    """Build the option that tyro makes of one field."""
    marks = list_marks(annotation)
    name = next((mark.name for mark in marks if getattr(mark, "name", None)), name)
    is_positional = tyro.conf.Positional in marks
    return CommandOption(
        flag=name.upper() if is_positional else f"--{prefix}{dash_name(name)}",
        annotation=annotation,
        default=default,
        doc=doc,
        is_positional=is_positional,
    )


def list_marks(annotation: Any) -> Sequence[Any]:
    """Return the marks of an annotated type; nothing for a plain type."""
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def strip_marks(annotation: Any) -> Any:
    """Return a type without its marks, and without None where it may be left out."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return strip_marks(arguments[0])
    if origin in (Union, types.UnionType):
        return strip_marks(next(part for part in arguments if part is not type(None)))
    return annotation


def dash_name(name: str) -> str:
    """Return the name of a field as the command line has it."""
    return name.replace("_", "-")
