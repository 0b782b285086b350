"""Fields of classes in words: types, defaults, and tables of both with what each field means."""

import inspect
import re
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from docs.generate.markdown import MISSING, format_code, format_table, start_sentence
from equipoise.storage.user_paths import PathText
from jobs.command_options.class_fields import REQUIRED, list_fields

MAX_INLINE_CHOICES = 3  # names joined by `or`; more are a list
PLURAL_TYPES = {"text": "texts", "integer": "integers", "number": "numbers"}
TYPE_NAMES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    bytes: "base64 text",
    type(None): "null",
    Path: "path",
    PathText: "path",
    object: "any",
    Any: "any",
}


def format_type(annotation: Any, name_class: Callable[[type], str] = lambda kind: format_code(kind.__name__)) -> str:
    """Format a type in words; `name_class` formats the classes of the project, for example as links."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return find_binary_format(arguments[1:]) or format_type(arguments[0], name_class)
    if origin is Literal:
        separator = " or " if len(arguments) <= MAX_INLINE_CHOICES else ", "
        return separator.join(format_code(str(choice)) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(format_type(part, name_class) for part in arguments if part is not msgspec.UnsetType)
    if origin in (list, tuple, set, frozenset) or (inspect.isclass(origin) and issubclass(origin, Sequence)):
        return f"list of {format_plural(arguments[0], name_class)}"
    if (inspect.isclass(origin) and issubclass(origin, dict)) or (origin is not None and "Mapping" in str(origin)):
        return f"object of {format_plural(arguments[1], name_class)}" if arguments[1] is not Any else "object"
    if annotation in TYPE_NAMES:
        return TYPE_NAMES[annotation]
    return name_class(annotation) if inspect.isclass(annotation) else format_code(str(annotation))


def format_plural(annotation: Any, name_class: Callable[[type], str]) -> str:
    """Format the type of several values."""
    text = format_type(annotation, name_class)
    return PLURAL_TYPES.get(text, text)


def find_binary_format(marks: Sequence[Any]) -> str:
    """Return `file` or `base64 text` for text that stands for bytes in an OpenAPI document, else an empty string."""
    names = {"binary": "file", "byte": "base64 text"}
    schemas = [mark.extra_json_schema for mark in marks if getattr(mark, "extra_json_schema", None)]
    return next((names[schema["format"]] for schema in schemas if schema.get("format") in names), "")


def format_default(default: Any) -> str:
    """Format a default value: `none` for None, numbers without needless digits, no path of this machine."""
    if default is REQUIRED:
        return "required"
    if default is None or default is msgspec.UNSET or default == () or default == [] or default == {}:
        return MISSING
    if isinstance(default, bool):
        return format_code(str(default).lower())
    if isinstance(default, float):
        return format_code(f"{default:.12g}")
    if isinstance(default, tuple | list) and not hasattr(default, "_fields"):
        return format_code(" ".join(map(str, default)))
    return format_code(str(default))


def replace_none(text: str) -> str:
    """Replace Python's name of an unknown value by that of JSON."""
    return re.sub(r"\bNone\b", "null", text)


def format_field_table(owner: Any, name_class: Callable[[type], str] | None = None) -> str:
    """Format the fields of a class as a table of key, type and meaning, in the words of JSON."""
    rows = [
        (
            format_code(field.name),
            format_type(field.annotation, name_class) if name_class else format_type(field.annotation),
            replace_none(start_sentence(field.doc)),
        )
        for field in list_fields(owner)
    ]
    return format_table(("key", "type", "meaning"), rows)
