"""Find the test files that import a module, directly or through another module."""

import ast
from functools import cache
from pathlib import Path

TEST_FOLDERS = ("tests/unit", "tests/contract")


def find_test_files(root: Path, module_path: Path) -> list[list[str]]:
    """Return the tests that import a module, those that import it through another, and others that may reach it.

    These are the contract tests and the unit tests of its package: they reach modules by names in a registry.
    """
    imports = read_imports(root)
    module = module_name(module_path)
    importers = {name for name, imported in imports.items() if module in imported and not name.startswith("tests.")}
    tests = {path: find_imports_of_test(imports, module_name(path)) for path in list_test_files(root)}
    direct = [str(path) for path, imported in tests.items() if module in imported]
    indirect = [str(path) for path, imported in tests.items() if imported & importers and str(path) not in direct]
    direct.sort(
        key=lambda path: module_path.stem not in Path(path).stem
    )  # its own tests first: pytest ends at a failure
    package = {"contract", module_path.parts[0], module_path.parts[1]}
    others = [str(path) for path in list_test_files(root) if package & {*path.parts[1:3]}]
    return [direct, indirect, [path for path in others if path not in direct + indirect]]


def find_imports_of_test(imports: dict[str, frozenset[str]], test: str) -> frozenset[str]:
    """Return the modules that a test file imports, and those that its helpers in tests.support do."""
    helpers = [name for name in imports[test] if name.startswith("tests.support.") and name in imports]
    return imports[test].union(*(imports[name] for name in helpers))


@cache
def list_test_files(root: Path) -> tuple[Path, ...]:
    """List the unit and contract test files, relative to the root."""
    return tuple(
        sorted(path.relative_to(root) for folder in TEST_FOLDERS for path in (root / folder).rglob("test_*.py"))
    )


@cache
def read_imports(root: Path) -> dict[str, frozenset[str]]:
    """Return the modules that each module of the project imports, by name."""
    folders = ("equipoise", "jobs", "services", "dashboards", "tests", "benchmarks")
    paths = [path for folder in folders for path in (root / folder).rglob("*.py")]
    return {module_name(path.relative_to(root)): find_imported(path) for path in paths}


def module_name(path: Path) -> str:
    """Return the dotted name of a module from its path."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def find_imported(path: Path) -> frozenset[str]:
    """Return the modules that a file imports anywhere, functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)
