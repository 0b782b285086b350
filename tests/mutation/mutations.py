"""Small faults that can be planted in a source file: the mutations of each expression and statement."""

import ast
import copy
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.mutation.importers import find_imported

COMPARISONS = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
CONSTANT_FACTOR = 1.1
SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "bases")
# functions of which swapped arguments change nothing; `clip` takes the larger of its first two
COMMUTATIVE_FUNCTIONS = {"max", "min", "maximum", "minimum", "hypot", "logaddexp", "clip", "suppress"}


@dataclass(frozen=True)
class Mutation:
    """Replacement of one piece of a source file."""

    path: Path
    scope: str
    """qualified name of the function or class around the piece; empty at the top of a module"""
    line: int
    start: int
    """offset of the piece in the file's bytes"""
    end: int
    kind: str
    before: str
    after: str
    number: str = ""
    """which of the same faults in a function it is, such as ` (2 of 3)`; empty if it is the only one"""

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    @property
    def key(self) -> str:
        """Return a text that stays the same when the piece moves to another line."""
        return f"{self.path} {self.scope} {self.kind}: {self.before[:70]!r} -> {self.after[:70]!r}{self.number}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.key.partition(' ')[2]}"


def list_mutations(path: Path, source: bytes) -> list[Mutation]:
    """List all mutations of a file, in the order of its lines."""
    line_offsets = [0]
    for line in source.split(b"\n"):
        line_offsets.append(line_offsets[-1] + len(line) + 1)
    mutations = []
    for scope, node in iterate_code(ast.parse(source)):
        start = line_offsets[node.lineno - 1] + node.col_offset
        end = line_offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = source[start:end].decode()
        for kind, after in describe_faults(node):
            if after != before:
                mutations.append(Mutation(path, scope, node.lineno, start, end, kind, before, after))
    return number_equal_faults(mutations)


def number_equal_faults(mutations: list[Mutation]) -> list[Mutation]:
    """Return mutations of one file in the order of their places, those with the same key numbered."""
    mutations = sorted(mutations, key=lambda mutation: (mutation.start, -mutation.end))
    totals, seen = Counter(mutation.key for mutation in mutations), Counter[str]()
    numbered = []
    for mutation in mutations:
        seen[mutation.key] += 1
        total = totals[mutation.key]
        numbered.append(replace(mutation, number=f" ({seen[mutation.key]} of {total})" if total > 1 else ""))
    return numbered


def iterate_code(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield the expressions and statements that run, with the name of the function or class around each.

    Annotations, docstrings, options of classes (such as `frozen`) and the parts of f-strings are left out, and so is
    `strict=True`: it shows faults elsewhere, and the code does the same without it.
    """
    pending: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while pending:
        scope, node = pending.pop(0)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield scope, node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope = f"{scope}.{node.name}".removeprefix(".")
        for name, value in ast.iter_fields(node):
            is_class_option = name == "keywords" and isinstance(node, ast.ClassDef)
            if name in SKIPPED_FIELDS or is_class_option or isinstance(node, ast.JoinedStr):
                continue
            children = value if isinstance(value, list) else [value]
            pending += [(scope, child) for child in children if isinstance(child, ast.AST)]


def describe_faults(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the kind and the new text of each fault that can be planted at a node."""
    if isinstance(node, ast.Compare):
        for replacement in COMPARISONS.get(type(node.ops[0]), []):
            yield "comparison", unparse_changed(node, ops=[replacement(), *node.ops[1:]])
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
        yield "operator", f"({unparse_changed(node, op=OPERATORS[type(node.op)]())})"
    elif isinstance(node, ast.BoolOp):
        yield "condition", f"({unparse_changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "sign", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield "condition", f"({unparse_changed(node, test=ast.UnaryOp(ast.Not(), node.test))})"
    elif isinstance(node, ast.Constant):
        yield from describe_constant_faults(node.value)
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        if not any(isinstance(argument, ast.Starred) for argument in node.args[:2]) and not is_commutative(node):
            yield "swapped arguments", unparse_changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
    elif isinstance(node, ast.AugAssign | ast.Assign | ast.Expr) and not is_docstring(node):
        yield "deleted statement", "pass"


def describe_constant_faults(value: object) -> Iterator[tuple[str, str]]:
    """Yield the faults of a constant: a number that is one or ten percent off, or the opposite truth value."""
    if isinstance(value, bool):
        yield "constant", repr(not value)
    elif isinstance(value, int):
        yield "constant", repr(value + 1)
    elif isinstance(value, float) and value:
        yield "constant", repr(value * CONSTANT_FACTOR)


def is_commutative(call: ast.Call) -> bool:
    """Return whether a call gives the same result for swapped arguments."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in COMMUTATIVE_FUNCTIONS


def is_docstring(node: ast.stmt) -> bool:
    """Return whether a statement is a string by itself: a docstring, also that of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def unparse_changed(node: ast.AST, **changes: object) -> str:
    """Return the source of a node with some of its fields changed."""
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def needs_ray(path: Path) -> bool:
    """Return whether a module imports Ray or starts it as a program: its tests then need a cluster."""
    imported = find_imported(path) | {path.stem}
    return any(name.partition(".")[0] == "ray" or name.endswith("private_ray") for name in imported)


def sample_mutations(root: Path, packages: list[str], count: int, seed: int) -> list[Mutation]:
    """Draw mutations of the modules of some packages, each with the same probability.

    Modules that need Ray are left out: their tests start a cluster, and those tests are not run here. No module of the
    library needs Ray.
    """
    mutations = [
        mutation
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if not needs_ray(path)
        for mutation in list_mutations(path.relative_to(root), path.read_bytes())
    ]
    return random.Random(seed).sample(mutations, min(count, len(mutations)))  # noqa: S311 - not for secrets
