"""Options of the commands, read from their options classes (tyro) or parsers (argparse)."""

import argparse
import importlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docs.generate.fields import format_default, format_type
from docs.generate.markdown import MISSING, format_code
from jobs.cli.main import COMMAND_MODULES
from jobs.command_options.class_fields import REQUIRED
from jobs.command_options.option_groups import CommandOption, find_options_class, list_option_groups

METAVAR_TYPES = {"PATH|URL": "path or URL", "PATH": "path"}
NUMBER_WORDS = {2: "two", 3: "three"}
PLURALS = {"text": "texts", "integer": "integers", "number": "numbers", "path": "paths"}


@dataclass(frozen=True, kw_only=True)
class OptionFacts:
    """One option as the reference shows it."""

    names: tuple[str, ...]
    """as typed, such as --drift and --no-drift; the name in capitals where it is given by its position"""
    type: str
    default: str
    help: str
    metavar: str = ""
    """placeholder of the value in the usage line; empty for flags and positional arguments"""

    @property
    def is_positional(self) -> bool:
        """Whether the value is given by its position, without a name."""
        return not self.names[0].startswith("-")


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options that the help shows in one frame."""

    doc: str
    """what they have in common; empty for the options of the command itself"""
    options: list[OptionFacts] = field(default_factory=list)


def load_option_groups(command: str) -> list[OptionGroup]:
    """Return the option groups of a command in the order of its help."""
    module = importlib.import_module(COMMAND_MODULES[command])
    if hasattr(module, "build_parser"):
        return [OptionGroup(doc="", options=list(list_parser_options(module.build_parser())))]
    return [
        OptionGroup(doc=group.doc, options=[*map(describe_option, group.options)])
        for group in list_option_groups(find_options_class(command))
    ]


def list_parser_options(parser: argparse.ArgumentParser) -> Iterator[OptionFacts]:
    """Yield the options of an argparse parser, without its help."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        several = " (one or more)" * (action.nargs == "+")
        yield OptionFacts(
            names=tuple(action.option_strings) or (str(action.metavar or action.dest.upper()),),
            type=format_type(action.type or str) + several,
            default="required" if action.required else MISSING,
            help=action.help or "",
            metavar=str(action.metavar or action.dest.upper()),
        )


def describe_option(option: CommandOption) -> OptionFacts:
    """Describe one option of an options class."""
    if option.is_switch and not option.is_positional:
        default = "on" if option.default else "off"
        return OptionFacts(names=(option.flag, option.off_flag), type="flag", default=default, help=option.doc)
    return OptionFacts(
        names=(option.flag,),
        type=format_option_type(option.annotation),
        default=format_default(option.default),
        help=option.doc,
        metavar=option.flag.rpartition(".")[2].removeprefix("--").upper(),
    )


def format_option_type(annotation: Any) -> str:
    """Format the type of an option's value; whether it may be left out stands in the column of defaults."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return format_option_type(next(part for part in arguments if part is not type(None)))
    if origin is Annotated:
        metavars = [mark.metavar for mark in arguments[1:] if getattr(mark, "metavar", None)]
        if metavars:
            return METAVAR_TYPES.get(metavars[0], " or ".join(map(format_code, metavars[0].split("|"))))
        return format_option_type(arguments[0])
    if origin is Literal:
        return ", ".join(map(format_code, arguments))
    if origin is tuple:
        plural = PLURALS[format_type(arguments[0])]
        return plural if arguments[-1] is Ellipsis else f"{NUMBER_WORDS[len(arguments)]} {plural}"
    return format_type(annotation)


def is_required(option: OptionFacts) -> bool:
    """Return whether a command cannot do without an option."""
    return option.default == format_default(REQUIRED)
