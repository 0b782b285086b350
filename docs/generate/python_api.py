"""Page of the Python interface: signatures, docstrings and fields of the public names."""

import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin

import equipoise
from docs.generate.markdown import (
    MISSING,
    build_page,
    format_code,
    format_fence,
    format_table,
    mark_code,
    start_sentence,
)
from jobs.command_options.class_fields import REQUIRED, list_fields

PUBLIC_NAMES = {
    "TrainConfig": "equipoise.config",
    "Workload": "equipoise.workloads.base",
    "ImageWorkload": "equipoise.workloads.image_workload",
    "Split": "equipoise.workloads.base",
    "Unit": "equipoise.workloads.base",
    "Augment": "equipoise.images.augment",
    "load_workload": "equipoise.workloads",
    "sweep": "equipoise.workloads.notebook_sweep",
    "laps": "equipoise.training.loop",
    "Lap": "equipoise.runs.record",
    "EquipoiseClient": "equipoise.client",
    "observe": "equipoise.observation.observer",
    "Observer": "equipoise.observation.observer",
    "load_bundle": "equipoise.bundle.bundle",
    "Bundle": "equipoise.bundle.kinds.base_bundle",
    "ImageBundle": "equipoise.bundle.kinds.image_bundle",
    "TableBundle": "equipoise.bundle.kinds.table_bundle",
    "TextBundle": "equipoise.bundle.kinds.text_bundle",
    "BoxesBundle": "equipoise.bundle.kinds.boxes_bundle",
    "Prediction": "equipoise.bundle.kinds.predictions",
    "NumberPrediction": "equipoise.bundle.kinds.predictions",
    "TextPrediction": "equipoise.bundle.kinds.predictions",
    "NextToken": "equipoise.bundle.kinds.predictions",
    "FoundBox": "equipoise.boxes.found_box",
    "PlanDocument": "equipoise.planning.document",
    "EquipoiseError": "equipoise.errors",
}
"""module of each public name, in the order of the page"""
PYTHON_INTRODUCTION = """\
The names in `equipoise.__all__` are public, and so is `EquipoiseClient`; everything else in the packages
[may change at any time](../releases.md#what-is-public). This page describes those that most programs need. None but
`sweep` needs Ray: `laps` trains in the process that calls it.

| to | use |
|---|---|
| train in a notebook, a test or under `torchrun` | [`TrainConfig`](#trainconfig), [`laps`](#laps) |
| find the fastest plan for a workload from a notebook | [`sweep`](#sweep) |
| watch your own training loop | [`observe`](#observe), [`Observer`](#observer) |
| train on your own images | [`ImageWorkload`](#imageworkload), [`Split`](#split), [`Augment`](#augment) |
| train on your own data of any kind | [`Workload`](#workload), [`Split`](#split), [`Unit`](#unit) |
| predict with a published model | [`load_bundle`](#load_bundle), [`ImageBundle`](#imagebundle) |
| predict for rows of a table or for texts | [`TableBundle`](#tablebundle), [`TextBundle`](#textbundle) |
| find boxes in photographs | [`BoxesBundle`](#boxesbundle), [`FoundBox`](#foundbox) |
| read a plan | [`PlanDocument`](#plandocument) |
| start jobs on a running site, and read their results | [`EquipoiseClient`](#equipoiseclient) |
| handle mistakes of a user | [`EquipoiseError`](#equipoiseerror) |

```python skip="an example"
from equipoise import TrainConfig, laps, load_bundle

for lap in laps(TrainConfig(workload="digits", batch_size=64, lr=0.1)):
    print(lap.seen, lap.loss, lap.metric)

bundle = load_bundle("bundles/vending")
prediction = bundle.predict(bundle.preprocess(["cola.jpg"]))
print(prediction.labels, prediction.scores)
```"""
MODULE_PREFIX = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])")
ARRAY_TYPE = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]")
FORWARD_REFERENCE = re.compile(r"-> '(\w+)'")
ATTRIBUTES = re.compile(r"\nAttributes:\n(.*)\Z", re.DOTALL)


def build_python_api_page() -> str:
    """Build the page of all public names, docs/reference/python-api.md."""
    return build_page(
        "Python API",
        PYTHON_INTRODUCTION,
        *(block for name in PUBLIC_NAMES for block in build_name_section(name)),
    )


def build_name_section(name: str) -> Iterator[str]:
    """Yield the section of a public name."""
    value = getattr(importlib.import_module(PUBLIC_NAMES[name]), name)
    yield f"## {name}"
    yield format_fence("python", f"from {find_public_module(name)} import {name}", "an import")
    if inspect.isclass(value):
        yield from build_class_blocks(value)
    else:
        yield format_fence("python", format_signature(name, value), "a signature")
        yield mark_code(inspect.getdoc(value) or "")


def find_public_module(name: str) -> str:
    """Return the module that a public name is imported from by programs of users."""
    return "equipoise" if name in equipoise.__all__ else PUBLIC_NAMES[name]


def build_class_blocks(kind: type) -> Iterator[str]:
    """Yield the docstring, fields or attributes, properties and methods of a class."""
    docstring = inspect.cleandoc(kind.__doc__ or "")
    if not is_dataclass(kind):
        yield format_fence("python", format_signature(kind.__name__, vars(kind)["__init__"]), "a signature")
    yield mark_code(ATTRIBUTES.sub("", docstring))
    if is_dataclass(kind):
        yield format_table(("field", "type", "default", "meaning"), map(format_field_row, list_fields(kind)))
    else:
        yield mark_code(inspect.cleandoc(vars(kind)["__init__"].__doc__ or ""))
    rows = [*parse_attributes(docstring), *list_properties(kind)]
    yield format_table(("attribute", "meaning"), rows)
    for name, method in list_methods(kind):
        yield f"### {kind.__name__}.{name}"
        yield format_fence("python", format_signature(name, method), "a signature")
        yield mark_code(inspect.getdoc(method) or "")


def format_field_row(field: Any) -> tuple[str, str, str, str]:
    """Format a field of a dataclass as a row: name, type, default, meaning."""
    return (
        format_code(field.name),
        format_annotation(field.annotation),
        format_python_default(field.default),
        start_sentence(field.doc),
    )


def format_python_default(default: Any) -> str:
    """Format a default value as Python; a function by its name."""
    if default is REQUIRED:
        return "required"
    return format_code(default.__name__ if inspect.isfunction(default) else repr(default))


def format_annotation(annotation: Any) -> str:
    """Format a type annotation without modules and without the bounds that only decoding needs."""
    if get_origin(annotation) is Annotated:
        return format_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(format_annotation(part) for part in get_args(annotation))
    return format_code("None" if annotation is type(None) else simplify_types(inspect.formatannotation(annotation)))


def format_signature(name: str, function: Callable[..., Any]) -> str:
    """Format the signature of a function or method, without `self` and without modules."""
    signature = inspect.signature(inspect.unwrap(function))
    parameters = [value for key, value in signature.parameters.items() if key not in ("self", "cls")]
    returned = signature.replace(parameters=parameters)
    return f"{name}{simplify_types(str(returned)).removesuffix(' -> None')}"


def simplify_types(text: str) -> str:
    """Leave out of type annotations the modules, the quotes of forward references, and the parts of arrays."""
    return FORWARD_REFERENCE.sub(r"-> \1", ARRAY_TYPE.sub(r"NDArray[\1]", MODULE_PREFIX.sub("", text)))


def parse_attributes(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield name and meaning of each line in the Attributes section of a docstring."""
    match = ATTRIBUTES.search(docstring)
    for line in (match[1] if match else "").splitlines():
        name, _, meaning = line.strip().partition(": ")
        yield format_code(name), start_sentence(meaning)


def list_properties(kind: type) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of the public properties that a class defines."""
    for name, value in vars(kind).items():
        if isinstance(value, property) and not name.startswith("_"):
            yield format_code(name), mark_code(inspect.getdoc(value) or MISSING)


def list_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods that a class defines, as the functions behind them."""
    field_names = {field.name for field in fields(kind)} if is_dataclass(kind) else set()  # a field may be a function
    for name, value in vars(kind).items():
        if name.startswith("_") or name in field_names:
            continue
        if inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            yield name, value.__func__ if isinstance(value, classmethod | staticmethod) else value
