"""Tests that a callback whose package is missing says so, and that equipoise itself needs none of them."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.support.errors import raises_code
from tests.support.ray_cluster import ROOT


@pytest.mark.parametrize(("module", "package"), [("lightning", "lightning"), ("transformers", "transformers")])
def test_callback_without_its_package_is_refused(module, package):
    if find_spec(package):
        pytest.skip(f"{package} is installed")
    with raises_code("package-missing", "is not installed"):
        __import__(f"equipoise.callbacks.{module}")


def test_observing_imports_no_framework():
    program = (
        "import sys, equipoise; equipoise.observe; print(*{'lightning', 'transformers', 'accelerate'} & {*sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
