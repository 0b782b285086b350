"""Import of frameworks without the warnings of their own code; tests of those that are missing are skipped."""

import warnings
from contextlib import suppress
from importlib import import_module

import pytest

FRAMEWORK_WARNINGS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for package in ("lightning.pytorch", "transformers", "accelerate"):
        with suppress(ImportError):
            import_module(package)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "callbacks":
            for warning in FRAMEWORK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))
