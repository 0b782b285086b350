"""Fields of dataclasses, msgspec structs and pydantic models: name, type, default and the docstring below each."""

import ast
import inspect
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from docs.generate.markdown import MISSING, format_code, format_table, start_sentence
from equipoise.storage.user_paths import PathText

MAX_INLINE_CHOICES = 3  # names joined by `or`; more are a list
REQUIRED = object()
"""default of a field that must be given"""
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


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One field as the reference shows it."""

    name: str
    annotation: Any
    default: Any
    """value, or REQUIRED"""
    doc: str


@cache
def read_attribute_docs(owner: type) -> dict[str, str]:
    """Read the docstrings below the fields of a class; a subclass may replace those of its bases."""
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] not in ("equipoise", "jobs", "services", "dashboards"):
            continue
        body = find_class_body(base)
        for statement, following in pairwise(body):
            is_doc = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and is_doc:
                docs[statement.target.id] = inspect.cleandoc(str(following.value.value))  # type: ignore[attr-defined]
    return docs


def find_class_body(owner: type) -> list[ast.stmt]:
    """Return the statements of a class as they stand in the source of its module."""
    module = ast.parse(Path(inspect.getfile(owner)).read_text(encoding="utf-8"))
    return next(node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)


def list_fields(owner: Any) -> list[FieldFacts]:
    """List the fields of a dataclass, msgspec struct or named tuple in their order."""
    docs, hints = read_attribute_docs(owner), get_type_hints(owner, include_extras=True)
    if is_dataclass(owner):
        named = [
            (field.name, field.name, choose_default(field.default, field.default_factory)) for field in fields(owner)
        ]
    elif is_named_tuple(owner):
        named = [(name, name, owner._field_defaults.get(name, REQUIRED)) for name in owner._fields]
    else:
        named = [
            (field.name, field.encode_name, choose_default(field.default, field.default_factory))
            for field in msgspec.structs.fields(owner)
        ]
    return [
        FieldFacts(
            name=shown,
            annotation=hints[name],
            default=default,
            doc=docs.get(name, "") or find_description(hints[name]),
        )
        for name, shown, default in named
        if get_origin(hints[name]) is not NoReturn
    ]


def is_named_tuple(kind: type) -> bool:
    """Return whether a class is a named tuple."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def choose_default(default: Any, factory: Any) -> Any:
    """Return the default of a field, from its factory where it has one."""
    if default not in (NO_DEFAULT, msgspec.NODEFAULT):
        return default
    if factory not in (NO_DEFAULT, msgspec.NODEFAULT):
        return factory()
    return REQUIRED


def find_description(annotation: Any) -> str:
    """Return the description that an annotation carries for the OpenAPI document, or an empty string."""
    if get_origin(annotation) is not Annotated:
        return ""
    return next((part.description for part in get_args(annotation)[1:] if getattr(part, "description", None)), "")


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
