"""Fields of dataclasses, msgspec structs and named tuples: name, type, default and the docstring below each."""

import ast
import inspect
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

import msgspec

REQUIRED = object()
"""default of a field that must be given"""


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One field of a class: name, type, default and what it means."""

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
