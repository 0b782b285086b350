"""Find the functions that use a name which a module defines at its top, such as a constant."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.mutation.called_functions import Function
from tests.mutation.importers import module_name, read_imports

METHODS = ast.FunctionDef, ast.AsyncFunctionDef
"""parts of a class that are users of their own"""


def find_users_of_line(root: Path, path: Path, line: int) -> set[Function]:
    """Return the functions, in any module, that use what a statement at the top of a module defines."""
    tree = ast.parse((root / path).read_bytes())
    statements = [node for node in tree.body if node.lineno <= line <= (node.end_lineno or node.lineno)]
    names = {name for statement in statements for name in list_targets(statement)}
    for statement in tree.body:  # constants that are computed from the constant
        if names & list_names(statement):
            names |= set(list_targets(statement))
    module = module_name(path)
    users = {(str(path), function) for function in find_users(tree, names)}
    for other, imported in read_imports(root).items():
        used = {name for name in names if f"{module}.{name}" in imported} if other != module else set()
        if used:
            other_path = find_module(root, other)
            users |= {(str(other_path), function) for function in find_users(read_tree(root / other_path), used)}
    return users


def list_targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment defines."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def list_names(node: ast.AST) -> set[str]:
    """Return all names that a piece of code uses, parts of names like `module.NAME` included."""
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    return names | {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}


def find_users(tree: ast.Module, names: set[str]) -> set[str]:
    """Return the qualified names of the functions and classes with one of these names in them."""
    users = set()
    pending: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while pending:
        scope, node = pending.pop()
        if isinstance(node, (*METHODS, ast.ClassDef)):
            scope = f"{scope}.{node.name}".removeprefix(".")
            parts = (
                [child for child in node.body if not isinstance(child, METHODS)]
                if isinstance(node, ast.ClassDef)
                else [node]
            )
            if any(names & list_names(part) for part in parts):
                users.add(scope)
            pending += [(scope, child) for child in node.body]
    return users


def find_module(root: Path, module: str) -> Path:
    """Return the path of a module of the project below its root."""
    path = Path(*module.split("."))
    return path.with_suffix(".py") if (root / path.with_suffix(".py")).exists() else path / "__init__.py"


def read_tree(path: Path) -> ast.Module:
    """Parse a module."""
    return ast.parse(path.read_bytes())
