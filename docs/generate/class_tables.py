"""Sections on the classes behind JSON: a table of their fields, with links between them."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import msgspec

from docs.generate.fields import format_field_table, replace_none
from docs.generate.markdown import format_code, make_anchor, mark_code
from jobs.command_options.class_fields import is_named_tuple


def is_record(kind: Any) -> bool:
    """Return whether a type has fields that a table can show: also a named tuple, which JSON has as a list."""
    return inspect.isclass(kind) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct) or is_named_tuple(kind))


def collect_classes(types: Iterable[Any]) -> list[type]:
    """Collect the dataclasses and structs in types and in their fields, each once, in the order in which they occur."""
    collected: dict[type, None] = {}
    waiting = list(types)
    while waiting:
        kind = waiting.pop(0)
        if is_record(kind):
            if kind not in collected:
                collected[kind] = None
                waiting = [*get_type_hints(kind, include_extras=True).values(), *waiting]
        else:
            waiting = [*get_args(kind), *waiting]
    return list(collected)


def link_class(kind: type) -> str:
    """Return a link to the section of a class on the same page."""
    return f"[{format_code(kind.__name__)}](#{make_anchor(kind.__name__)})"


def format_class_section(kind: type, name_class: Callable[[type], str] = link_class) -> Iterator[str]:
    """Yield the heading, the first paragraph of the docstring and the field table of a class."""
    yield f"### {kind.__name__}"
    yield mark_code(replace_none(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]))
    yield format_field_table(kind, name_class)
