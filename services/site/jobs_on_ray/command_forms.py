"""Forms of the commands, made from the same options classes as their command lines."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.command_options.class_fields import REQUIRED
from jobs.command_options.option_groups import CommandOption, find_options_class, list_option_groups, strip_marks
from services.site.jobs_on_ray.command_topics import LAYOUTS, OTHER_TOPIC, TOPICS, FormLayout, find_topic

RESULT_FLAGS = frozenset({"out", "plan", "run", "bundle", "link", "verdict", "capture-dir", "init-from"})
"""options whose relative value is a name below the results folder, not below the folder that the site runs in"""
OPTIONS_LOCK = threading.Lock()
"""held while options are listed or parsed, which fails in two threads at once: the parser of Python 3.11 that reads
their texts is not made for it, and the names for a remedy are read from a help that is printed"""
OUT_HELP = "name of the folder below the results that this job writes to; the same name goes on where it was stopped"


@dataclass(frozen=True, kw_only=True)
class FormField:
    """Field of a form: one option of the command."""

    name: str
    """the option without its dashes, such as batch-size"""
    option: CommandOption
    help: str
    control: str
    """switch, choice or text"""
    input_mode: str
    """keyboard that a phone shows: numeric, decimal or text"""
    default: str
    """what holds if nothing is given, in words; empty for nothing"""
    is_required: bool


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    """Fields that are folded below one heading."""

    heading: str
    fields: tuple[FormField, ...]


@dataclass(frozen=True, kw_only=True)
class CommandForm:
    """Form of one command, with its options in their order."""

    command: str
    layout: FormLayout
    options_class: Any
    first: tuple[FormField, ...]
    folded: tuple[FieldGroup, ...]

    @property
    def fields(self) -> tuple[FormField, ...]:
        """All fields, in the order of the form."""
        return (*self.first, *(field for group in self.folded for field in group.fields))


def load_command_form(command: str) -> CommandForm:
    """Return the form of a command; the first call imports it, which takes seconds."""
    with OPTIONS_LOCK:
        return build_command_form(command)


@cache
def build_command_form(command: str) -> CommandForm:
    """Build the form of a command; of several threads, only one may do so at a time."""
    layout, options_class = LAYOUTS[command], find_options_class(command)
    options = [option for group in list_option_groups(options_class) for option in group.options]
    fields = {option.flag.removeprefix("--"): build_field(option) for option in options}
    first = tuple(fields[name] for name in layout.first if name in fields)
    rest = [field for name, field in fields.items() if name not in layout.first]
    return CommandForm(
        command=command, layout=layout, options_class=options_class, first=first, folded=fold_fields(rest)
    )


def load_all_forms() -> None:
    """Build the forms of all commands, so that nobody waits for their import."""
    for command in LAYOUTS:
        load_command_form(command)


def fold_fields(fields: Sequence[FormField]) -> tuple[FieldGroup, ...]:
    """Return the fields in groups below their headings, without empty ones."""
    by_topic = {topic: tuple(field for field in fields if find_topic(field.name) == topic) for topic in TOPICS}
    by_topic[OTHER_TOPIC] = tuple(field for field in fields if find_topic(field.name) == OTHER_TOPIC)
    return tuple(FieldGroup(heading=topic, fields=group) for topic, group in by_topic.items() if group)


def build_field(option: CommandOption) -> FormField:
    """Build the field of an option."""
    name = option.flag.removeprefix("--")
    kind = strip_marks(option.annotation)
    control = "switch" if option.is_switch else "choice" if option.choices else "text"
    return FormField(
        name=name,
        option=option,
        help=OUT_HELP if name == "out" else option.doc,
        control=control,
        input_mode={int: "numeric", float: "decimal"}.get(kind, "text"),
        default=describe_default(option.default),
        is_required=option.is_required or name == "out",
    )


def describe_default(default: Any) -> str:
    """Describe what holds if an option is not given; empty for nothing."""
    if default is REQUIRED or default is None or default == ():
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:.12g}" if math.isfinite(default) else ""
    if isinstance(default, tuple) and not hasattr(default, "_fields"):
        return " ".join(map(str, default))
    return str(default)
