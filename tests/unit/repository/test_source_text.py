"""What is read from storage is data: no source of ours loads objects that could run what their writer chose."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [path for folder in ("equipoise", "jobs", "services", "dashboards") for path in (ROOT / folder).rglob("*.py")]
MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"torch.load", "torch.jit.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "eval", "exec"}
HARMLESS_WITH = {"np.load": ("allow_pickle", False), "torch.hub.load_state_dict_from_url": ("weights_only", True)}
METHODS = {"read_pickle"}


def unsafe(source):
    """Lines that load more than data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if MODULES & {name.partition(".")[0] for name in named}:
                yield node.lineno
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keyword, value = HARMLESS_WITH.get(name, ("", None))
            given = {one.arg: getattr(one.value, "value", None) for one in node.keywords}
            harmful = keyword and (keyword not in given or given[keyword] is not value)
            if harmful or name in CALLS or name.rpartition(".")[2] in METHODS:
                yield node.lineno


def test_nothing_is_unpickled():
    found = [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in unsafe(path.read_text())]
    assert len(SOURCES) > 100
    assert found == []


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
def test_each_way_is_seen(source):
    assert [*unsafe(source)] == [1]


@pytest.mark.parametrize("source", ["model.eval()", "np.load(path, allow_pickle=False)", "yaml.safe_load(text)"])
def test_what_reads_data_alone_passes(source):
    assert [*unsafe(source)] == []
