"""Versions of requirements.lock install on every Python that the project says it runs on."""

from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.ray_cluster import ROOT

OLDEST_PYTHON = "3.11.0"  # that of pyproject.toml; Debian 12 has 3.11.2


def list_locked_names():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [Requirement(line).name for line in lines if line and not line.startswith("#")]


def test_locked_versions_take_the_oldest_python():
    required = {}
    for name in list_locked_names():
        try:
            required[name] = metadata(name)["Requires-Python"]
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
    assert len(required) > 50
    assert not {
        name: text for name, text in required.items() if text and not SpecifierSet(text).contains(OLDEST_PYTHON)
    }
