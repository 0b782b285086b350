"""Files read from storage are data: no source file loads objects whose author could make them run code."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [path for folder in ("equipoise", "jobs", "services", "dashboards") for path in (ROOT / folder).rglob("*.py")]
UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"torch.load", "torch.jit.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "eval", "exec"}
SAFE_ARGUMENT_BY_CALL = {
    "np.load": ("allow_pickle", False),
    "torch.hub.load_state_dict_from_url": ("weights_only", True),
}
UNSAFE_METHODS = {"read_pickle"}


def find_unsafe_lines(source):
    """Yield the number of each line that loads more than data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = names if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and all(name.endswith("Error") for name in names):
                continue  # an exception loads nothing
            if UNSAFE_MODULES & {name.partition(".")[0] for name in modules}:
                yield node.lineno
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keyword, value = SAFE_ARGUMENT_BY_CALL.get(name, ("", None))
            arguments = {argument.arg: getattr(argument.value, "value", None) for argument in node.keywords}
            is_unsafe = keyword and (keyword not in arguments or arguments[keyword] is not value)
            if is_unsafe or name in UNSAFE_CALLS or name.rpartition(".")[2] in UNSAFE_METHODS:
                yield node.lineno


def test_no_source_file_loads_more_than_data():
    unsafe_lines = [
        f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in find_unsafe_lines(path.read_text())
    ]
    assert len(SOURCES) > 100
    assert unsafe_lines == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import cloudpickle.compat",
        "torch.load(path, weights_only=True)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=asked)",
        "torch.hub.load_state_dict_from_url(url)",
        "yaml.load(text, Loader)",
        "frame = pandas.read_pickle(path)",
        "eval(text)",
    ],
)
def test_unsafe_line_is_found(source):
    assert [*find_unsafe_lines(source)] == [1]


def test_exception_of_an_unsafe_module_may_be_caught():
    assert [*find_unsafe_lines("from pickle import UnpicklingError")] == []
    assert [*find_unsafe_lines("from pickle import UnpicklingError, loads")] == [1]


@pytest.mark.parametrize("source", ["model.eval()", "np.load(path, allow_pickle=False)", "yaml.safe_load(text)"])
def test_loading_plain_data_is_allowed(source):
    assert [*find_unsafe_lines(source)] == []
