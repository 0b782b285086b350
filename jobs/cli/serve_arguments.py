"""Arguments of `equipoise serve`: list them for its help, and refuse in one sentence what is not NAME=VALUE."""

import ast
import importlib.util
import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from equipoise.errors import EquipoiseError

SETTINGS_CLASSES = {
    "services.app": ("AppSettings",),
    "services.settings": ("ReplicaSettings", "ListenSettings"),
}
"""classes whose fields are the arguments, by module; they are read as text, since importing them takes seconds"""
YAML_ONLY = ("models", "limits")
"""arguments that are objects, which a command line cannot express"""
RAY_OPTIONS_WITH_VALUE = (
    "--runtime-env",
    "--runtime-env-json",
    "--working-dir",
    "--app-dir",
    "-d",
    "--address",
    "-a",
    "--route-prefix",
    "--name",
)
RAY_FLAGS = ("--blocking", "--non-blocking", "--reload", "-r")
HELP_HINT = "equipoise serve --help lists the arguments"


def require_serve_arguments(arguments: Sequence[str]) -> None:
    """Refuse the first argument that is neither NAME=VALUE nor an option of Ray Serve."""
    remaining = list(arguments)
    while remaining:
        token = remaining.pop(0)
        name, equals, _ = token.partition("=")
        if token in RAY_OPTIONS_WITH_VALUE:
            del remaining[:1]
        elif name in RAY_OPTIONS_WITH_VALUE or token in RAY_FLAGS or token[:2] in ("-d", "-a"):
            continue
        elif not (equals and name.isidentifier()):
            raise describe_wrong_argument(token, remaining[0] if remaining else "")


def describe_wrong_argument(token: str, following: str) -> EquipoiseError:
    """Return the error for an argument that is not NAME=VALUE; `following` is the one after it."""
    typed_name, _, value = token.partition("=")
    name = find_argument_name(typed_name)
    if name is None and token.startswith("-"):
        return EquipoiseError("option-unknown", f"arguments of serve are NAME=VALUE, got {typed_name}", HELP_HINT)
    if name is None:
        name, value = "bundle", token
    elif not value:
        value = "VALUE" if following.startswith("-") or "=" in following else following or "VALUE"
    if "://" in token + value:  # a URL may hold a secret
        token, value = "a URL" if token == value else typed_name, "URL"
    return EquipoiseError("option-format", f"arguments of serve are NAME=VALUE, got {token}", f"give {name}={value}")


def find_argument_name(typed_name: str) -> str | None:
    """Return the argument that a user probably means by an option such as --api-keys-file, or None."""
    names = list(read_argument_texts())
    name = typed_name.lstrip("-").replace("-", "_")
    similar = get_close_matches(name, names, 1) if typed_name.startswith("-") else []
    return name if name in names else similar[0] if similar else None


def format_serve_help() -> str:
    """List the arguments of `equipoise serve`, each with its description."""
    texts = read_argument_texts()
    width = max(map(len, texts)) + 2
    return "\n".join(
        [
            "usage: equipoise serve NAME=VALUE ...",
            "",
            "Serve a bundle over HTTP until Ctrl-C, for example: equipoise serve bundle=bundles/digits port=8000",
            "",
            "arguments:",
            *(f"  {name:<{width}}{text}" for name, text in texts.items()),
            "",
            f"{' and '.join(YAML_ONLY)} can only be given in a YAML file for `serve deploy`.",
            "Options of Ray Serve's `serve run`, such as --working-dir, are passed on to it.",
        ]
    )


def read_argument_texts() -> dict[str, str]:
    """Return the description of each argument that a command line can give, from the source of the settings."""
    texts: dict[str, str] = {}
    for module, class_names in SETTINGS_CLASSES.items():
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(module)
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        bodies = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
        for class_name in class_names:
            texts |= read_field_texts(bodies[class_name])
    return {name: text for name, text in texts.items() if name not in YAML_ONLY}


def read_field_texts(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the docstring below each field of a class, by the name of the field."""
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
