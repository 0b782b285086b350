"""The public interface: every name of `equipoise.__all__` resolves, has a type, and costs nothing before it is used."""

import ast
import inspect
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import equipoise
from equipoise.version import find_version

ROOT = Path(__file__).parents[3]
HEAVY_PACKAGES = {"torch", "torchvision", "numpy", "pandas", "PIL", "ray", "scipy", "sklearn"}


def run_python(script, folder, *flags):
    """Run a script in a new interpreter that finds the package in `folder`, and return what it prints as JSON."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *flags, "-c", script]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", equipoise.__all__)
def test_public_name_is_the_object_of_its_module(name):
    value = getattr(equipoise, name)
    assert getattr(equipoise, name) is value
    if name != "__version__":
        assert value.__name__ == name and value.__module__.startswith("equipoise.")
        assert len(inspect.getdoc(value).split()) > 4


def test_import_alone_imports_no_large_package_and_lists_all_names():
    script = "import equipoise, json, sys; print(json.dumps([dir(equipoise), sorted(sys.modules)]))"
    names, modules = run_python(script, ROOT)
    assert set(equipoise.__all__) <= set(names)
    assert "equipoise" in modules and HEAVY_PACKAGES & set(modules) == set()


def test_names_that_need_no_torch_do_not_import_it():
    script = """
import equipoise, json, sys
config = equipoise.TrainConfig(workload="digits")
request, error = equipoise.PlanRequest, equipoise.EquipoiseError
equipoise.build_plan_document, equipoise.PlanDocument, equipoise.read_step_times, equipoise.__version__
print(json.dumps("torch" in sys.modules))
"""
    assert run_python(script, ROOT) is False


def test_type_checkers_see_the_same_names_as_the_interpreter():
    tree = ast.parse(Path(equipoise.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == equipoise.MODULE_BY_NAME
    assert {*typed, "__version__"} == set(equipoise.__all__)
    assert Path(equipoise.__file__).with_name("py.typed").read_text() == ""


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'equipoise' has no attribute 'Nonsense'"):
        _ = equipoise.Nonsense


def test_version_is_that_of_the_project_file():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert equipoise.__version__ == find_version() == version


def test_version_of_files_that_are_not_installed_comes_from_their_project_file(tmp_path):
    package = tmp_path / "equipoise"
    package.mkdir()
    for name in ("__init__.py", "version.py"):
        (package / name).write_bytes((ROOT / "equipoise" / name).read_bytes())
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "equipoise"\nversion = "7.8.9"\n')
    script = "import equipoise, json; print(json.dumps(equipoise.__version__))"
    assert run_python(script, tmp_path, "-S") == "7.8.9"  # -S: without installed packages
