"""The command that exports a page: what it prints, and what it refuses in one sentence."""

import pandas as pd
import pytest

from jobs.export_page import main
from tests.support.bundles import publish_run, train_table
from tests.support.exported_pages import RUNTIME


@pytest.fixture
def run_export(monkeypatch, capsys):
    def run_main(*arguments):
        monkeypatch.setattr("sys.argv", ["export-page", *map(str, arguments)])
        return main(), capsys.readouterr()

    return run_main


def test_page_is_exported_once(run_export, digits_bundle, tmp_path):
    if not RUNTIME.exists():
        pytest.skip("no onnxruntime-web here: make .venv/browser/ready")
    arguments = ("--bundle", digits_bundle, "--out", tmp_path / "page", "--runtime", RUNTIME)
    status, printed = run_export(*arguments)
    assert status == 0 and "page of digits" in printed.out and "http.server" in printed.out
    assert (tmp_path / "page" / "index.html").is_file()
    status, printed = run_export(*arguments)
    assert status == 2 and "[path-exists]" in printed.err and printed.err.count("\n") == 1


def test_model_of_a_table_is_refused_before_npm_is_asked(run_export, monkeypatch, tmp_path):
    table = pd.DataFrame({"height": [0.5, 1.5] * 100, "kind": ["low", "high"] * 100})
    bundle = publish_run(train_table(tmp_path / "run", table, "kind", 64), tmp_path / "bundle")
    monkeypatch.setenv("PATH", "")
    status, printed = run_export("--bundle", bundle, "--out", tmp_path / "page")
    assert status == 2 and "it is a model of tables" in printed.err and "[bundle-kind]" in printed.err
    assert not (tmp_path / "page").exists()


def test_folder_that_is_no_bundle_is_refused(run_export, tmp_path):
    status, printed = run_export("--bundle", tmp_path, "--out", tmp_path / "page")
    assert status == 2 and "is not a bundle" in printed.err
