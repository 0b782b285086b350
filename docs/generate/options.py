"""Options of the commands, read from their options classes (tyro) or parsers (argparse)."""

import argparse
import importlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro

from docs.generate.fields import REQUIRED, format_default, format_type, list_fields
from docs.generate.markdown import MISSING, format_code
from jobs.cli.main import COMMAND_MODULES

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
    return list_class_groups(find_options_class(command))


def find_options_class(command: str) -> Any:
    """Return the options class of a command: the class of its module whose name ends with Options."""
    module = importlib.import_module(COMMAND_MODULES[command])
    [options_class] = [
        value
        for name, value in vars(module).items()
        if name.endswith("Options") and getattr(value, "__module__", "") == module.__name__
    ]
    return options_class


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


def list_class_groups(options_class: Any, prefix: str = "", doc: str = "") -> list[OptionGroup]:
    """List the options of a class as one group, followed by the groups of the dataclasses in its fields."""
    own, nested = OptionGroup(doc=doc), []
    for option in list_fields(options_class):
        marks = get_args(option.annotation)[1:] if get_origin(option.annotation) is Annotated else ()
        kind = get_args(option.annotation)[0] if marks else option.annotation
        if tyro.conf.Suppress in marks:
            continue
        if is_dataclass(kind):
            inner = "" if tyro.conf.OmitArgPrefixes in marks else f"{prefix}{dash_name(option.name)}."
            nested += list_class_groups(kind, inner, option.doc or str(kind.__doc__).partition("\n")[0])
        else:
            own.options.append(describe_option(option.name, option.annotation, option.default, option.doc, prefix))
    return [own, *nested]


def describe_option(name: str, annotation: Any, default: Any, doc: str, prefix: str) -> OptionFacts:
    """Describe one field of an options class as the option that tyro makes of it."""
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    name = next((mark.name for mark in marks if getattr(mark, "name", None)), name)
    if (get_args(annotation)[0] if marks else annotation) is bool:
        switches = (f"--{prefix}{dash_name(name)}", f"--{prefix}no-{dash_name(name)}")
        return OptionFacts(names=switches, type="flag", default="on" if default else "off", help=doc)
    is_positional = tyro.conf.Positional in marks
    shown_name = name.upper() if is_positional else f"--{prefix}{dash_name(name)}"
    return OptionFacts(
        names=(shown_name,),
        type=format_option_type(annotation),
        default=format_default(default),
        help=doc,
        metavar=dash_name(name).upper(),
    )


def dash_name(name: str) -> str:
    """Return the name of a field as the command line has it."""
    return name.replace("_", "-")


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
