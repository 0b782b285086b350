"""Files of onnxruntime-web come from a folder or from npm, and are those of one version."""

import shutil

import pytest

from jobs.cluster.processes import find_free_ports
from jobs.publishing.browser.runtime_files import (
    RUNTIME_SHA256,
    RUNTIME_VERSION,
    find_npm_reason,
    find_runtime_files,
    open_runtime,
)
from tests.support.errors import raises_code
from tests.support.exported_pages import RUNTIME
from tests.support.ray_cluster import ROOT


def test_installed_package_and_a_folder_of_its_files_are_taken():
    if not RUNTIME.exists():
        pytest.skip("no onnxruntime-web here: make .venv/browser/ready")
    for folder in (RUNTIME, RUNTIME / "dist"):
        with open_runtime(folder) as runtime:
            assert runtime == RUNTIME / "dist" and all((runtime / name).is_file() for name in RUNTIME_SHA256)


def test_makefile_installs_the_version_that_pages_take():
    assert f"onnxruntime-web@{RUNTIME_VERSION}" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_other_or_incomplete_files_are_refused(tmp_path):
    with raises_code("runtime-unavailable", "it has no ort.wasm.bundle.min.mjs"), open_runtime(tmp_path):
        pass
    for name in RUNTIME_SHA256:
        (tmp_path / name).write_text("another version")
    with raises_code("runtime-unavailable", "is not that of onnxruntime-web"), open_runtime(tmp_path):
        pass
    assert find_runtime_files(tmp_path) == tmp_path


def test_missing_npm_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises_code("runtime-unavailable", "npm is not on this machine", "--runtime"), open_runtime(None):
        pass


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm here")
def test_registry_that_does_not_answer_is_told_in_a_sentence(monkeypatch, tmp_path):
    [port] = find_free_ports(1)
    options = {"registry": f"http://127.0.0.1:{port}", "cache": str(tmp_path), "fetch_retries": "0", "noproxy": "*"}
    for name, value in options.items():
        monkeypatch.setenv(f"npm_config_{name}", value)
    with raises_code("runtime-unavailable", "npm ended with ECONNREFUSED", "--runtime"), open_runtime(None):
        pass


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("npm error code E404\nnpm error 404 Not Found", "npm ended with E404"),
        ("\nsomething else", "something else"),
        ("", "npm failed"),
    ],
)
def test_reason_is_the_line_of_npm_that_says_most(output, reason):
    assert find_npm_reason(output) == reason
