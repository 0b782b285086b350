"""Names, texts and sizes in the source, measured over all files so that they cannot decay file by file."""

import ast
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("equipoise", "jobs", "services", "dashboards", "docs")
SHARED_NAMES = {"main", "logger"}  # every command defines main, every module that logs defines logger
VAGUE_NAMES = {
    "told",
    "tell",
    "said",
    "say",
    "given",
    "asked",
    "ask",
    "made",
    "found",
    "noted",
    "judged",
    "remedied",
    "pointed",
    "kept",
    "shown",
    "seen",
    "learned",
    "begun",
    "answered",
    "counted",
    "planned",
    "listed",
    "read",
    "written",
    "one",
    "other",
    "things",
    "stuff",
    "helper",
    "helpers",
    "util",
    "utils",
    "misc",
}
VAGUE_CONSTANTS = {
    "MOST",
    "FEWEST",
    "LEAST",
    "SECONDS",
    "FEW",
    "SHOWN",
    "LARGEST",
    "PARTS",
    "NAMES",
    "SURE",
    "ENOUGH",
    "SMALL",
}
UNCLEAR_PHRASES = re.compile(
    r"foretold|foretell|gone on from|asked for what cannot|\bis no \w+ that\b|told by|\baloud\b|\bit is none\b",
    re.IGNORECASE,
)


@cache
def parse_sources():
    """Return the syntax tree of every module, by path."""
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def iterate_functions(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def top_level_functions():
    return [
        (path, node.name)
        for path, tree in parse_sources().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def top_level_names(tree):
    """Yield the functions, classes and constants that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def test_no_public_name_is_defined_in_more_than_two_modules():
    modules = defaultdict(set)
    for path, tree in parse_sources().items():
        for name in top_level_names(tree):
            modules[name].add(str(path))
    shared = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 2 and not name.startswith("_")}
    assert not {name: paths for name, paths in shared.items() if name not in SHARED_NAMES}


def test_functions_have_names_of_several_words():
    words = [len(name.strip("_").split("_")) for _, name in top_level_functions()]
    assert words.count(1) / len(words) <= 0.2
    assert statistics.mean(words) >= 2.2


def test_no_name_is_vague():
    vague_by_file = {
        str(path): vague
        for path, tree in parse_sources().items()
        if (vague := ({path.stem} | set(top_level_names(tree))) & (VAGUE_NAMES | VAGUE_CONSTANTS))
    }
    assert not vague_by_file


def test_docstrings_have_more_than_four_words():
    short = [
        (str(path), getattr(node, "name", "module"), docstring)
        for path, tree in parse_sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (docstring := ast.get_docstring(node)) is not None
        and len(docstring.split()) <= 4
    ]
    assert len(short) <= 10, short


def test_functions_files_and_folders_are_small():
    lengths = [
        node.end_lineno - node.lineno + 1 for tree in parse_sources().values() for node in iterate_functions(tree)
    ]
    assert statistics.median(lengths) <= 8
    long_files = {str(path): count for path in parse_sources() if (count := count_lines(ROOT / path)) > 300}
    assert not long_files
    modules = Counter(path.parent for path in parse_sources() if path.name != "__init__.py")
    assert not {str(folder): count for folder, count in modules.items() if count > 15}


def count_lines(file):
    return file.read_text(encoding="utf-8").count("\n")


def test_docstrings_comments_and_messages_are_plain_english():
    unclear_by_file = {str(path): texts for path in parse_sources() if (texts := find_unclear_texts(ROOT / path))}
    assert not unclear_by_file


def find_unclear_texts(file):
    """Return the strings and comments of a file that contain an unclear phrase."""
    with tokenize.open(file) as source:
        tokens = [*tokenize.generate_tokens(source.readline)]
    return [
        token.string
        for token in tokens
        if token.type in (tokenize.STRING, tokenize.COMMENT) and UNCLEAR_PHRASES.search(token.string)
    ]
