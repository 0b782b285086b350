"""The index of a folder shows its runs and sweeps, and reports files that are missing, half-written or foreign."""

import base64
import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.build import build_index, main
from dashboards.experiments import experiment_at, find_experiments
from dashboards.page import INDEX_LINK_TEXT, render_html
from dashboards.panels.experiment_index import build_index_page
from equipoise.storage.atomic import write_json
from tests.support.manifests import build_manifest
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

INVALID_FILES = {
    "half/record.json": '{"schema": 2, "config": {"worklo',
    "foreign/record.json": '{"hello": "world"}',
    "other/record.json": '["a", 1]',
    "empty/record.json": "",
    "deep/record.json": "[" * 100_000,
    "bytes/record.json": "\x00\xff",
    "half-plan/plan.json": '{"plan": {',
    "foreign-plan/plan.json": '{"name": "terraform", "front": 3}',
    "null-plan/plan.json": "null",
    "half-table/system.csv": "nodes,workers\n1,",
    "half-table/trial.json": "{}",
    "bundle/bundle.json": '{"name": 3}',
    "check/verdict.json": '{"state": "fine"}',
    "begun/trial.json": '{"workload": "digits"}',
}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    write_json(root / "good" / "record.json", record().to_json())
    for name, text in INVALID_FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "notes" / "readme.txt").parent.mkdir()
    return root


def test_unreadable_files_are_reported_and_the_rest_is_shown(root, capsys):
    write_sweep_folder(root / "swept")
    assert main([str(root)]) == 0
    html = (root / "index.html").read_text()
    for name in {name.split("/")[0] for name in INVALID_FILES}:
        assert f"{name}: " in html, name
    assert re.search(r'href="good/run.html"', html) and re.search(r'href="swept/curve.html"', html)
    assert (root / "good/run.html").exists() and (root / "swept/scaling.html").exists()
    assert not list(root.rglob("*/foreign/*.html"))


def test_hostile_records_do_not_hide_the_others(root):
    good = record().to_json()
    nested = json.loads("[" * 600 + "]" * 600)
    write_json(root / "deep" / "record.json", good | {"reason": nested})
    (root / "nan").mkdir()
    laps = [*good["laps"][:-1], good["laps"][-1] | {"metric": float("nan")}]
    (root / "nan" / "record.json").write_text(json.dumps(good | {"laps": laps}))
    write_json(root / "letters" / "bundle.json", build_manifest(name="\ud800").to_json())
    os.mkdir(os.fsencode(root) + b"/\xff")  # noqa: PTH102 - a name that is not valid UTF-8
    write_json(Path(os.fsdecode(os.fsencode(root) + b"/\xff/record.json")), good)
    for name in ("record.json", "plan.json", "bundle.json", "verdict.json"):
        (root / f"pipe-{name}").mkdir()
        os.mkfifo(root / f"pipe-{name}" / name)
    (root / "page" / "run.html").mkdir(parents=True)
    write_json(root / "page" / "record.json", good)
    os.utime(root / "page" / "run.html", (1e9, 1e9))
    assert main([str(root)]) == 0
    html = (root / "index.html").read_text()
    for name in (
        "good/run.html",
        "letters",
        "\\udcff",
        "nan",
        "record.json: it is not a regular file",
        "page",
        "deep: ",
    ):
        assert name in html
    data = gzip.decompress(base64.b64decode(re.search(r'id="data"[^>]*>([^<]+)', html)[1]))
    json.loads(data, parse_constant=pytest.fail)  # no NaN outside strings


@pytest.mark.parametrize("out", [".", "/", "folder", "pipe"])
def test_output_that_is_not_a_file_is_refused(root, out, capsys):
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    assert main([str(root), "--out", out if out in "./" else str(root / out)]) == 2
    assert capsys.readouterr().err.endswith("[path-kind]\n")
    assert (root / "pipe").is_fifo()


def test_link_to_an_index_stays_a_link(root):
    (root / "elsewhere.html").touch()
    (root / "index.html").symlink_to("elsewhere.html")
    assert main([str(root)]) == 0
    assert (root / "index.html").is_symlink() and (root / "elsewhere.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([""], "option-format"),
        (["ROOT", "--out", ""], "option-format"),
        (["s3://bucket/x"], "path-kind"),
        (["ROOT", "--out", "s3://name:open-sesame@bucket/x"], "url-secret"),
        (["ROOT", "--out", "s3:/name:open-sesame@bucket/x"], "url-secret"),
    ],
)
def test_folder_and_output_are_paths_on_this_machine(root, tmp_path, monkeypatch, capsys, arguments, code):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main([argument.replace("ROOT", str(root)) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"[{code}]\n") and "open-sesame" not in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_plans_with_invalid_contents_are_reported(root):
    (root / "odd").mkdir()
    for text in (
        '{"front": [{}], "warnings": []}',
        '{"front": [], "warnings": [], "plan": 3}',
        '{"front": [], "warnings": [], "system": {"predictions": [{}]}, "plan": null}',
        '{"front": [], "warnings": 7, "plan": {"nodes": "x"}}',
    ):
        (root / "odd/plan.json").write_text(text)
        assert main([str(root)]) == 0
        assert "odd: " in (root / "index.html").read_text()


def test_damaged_plan_of_a_sweep_is_reported_by_its_name(root):
    folder = write_sweep_folder(root / "swept")
    write_json(folder / "plan.json", {"plan": None})
    assert main([str(root)]) == 0
    html = (root / "index.html").read_text()
    assert "swept: cannot read plan.json" in html and str(folder) not in html and 'href="good/run.html"' in html


def test_trials_of_a_sweep_are_not_listed_as_experiments(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    write_json(folder / "trials" / "one.json", record().to_json())
    write_json(folder / "confirm" / "2x16" / "record.json", record().to_json())
    experiments = {
        experiment.path.relative_to(tmp_path).as_posix(): experiment for experiment in find_experiments(tmp_path)
    }
    assert {name: experiment.kind for name, experiment in experiments.items()} == {
        "swept": "sweep",
        "swept/confirm/2x16": "run",
    }
    # Trials that were cut off have no row in statistical.csv and do not count.
    assert experiments["swept"].content.num_trials == len(experiments["swept"].content.examples_to_target) > 1


def test_experiment_at_agrees_with_find_experiments(root, tmp_path):
    for experiment in find_experiments(root):
        assert experiment_at(root, experiment.path.relative_to(root)).kind == experiment.kind
    outside = tmp_path / "outside"
    write_json(outside / "record.json", record().to_json())
    (root / "linked").symlink_to(outside)
    (root / ".hidden").mkdir()
    write_json(root / ".hidden" / "record.json", record().to_json())
    for path in ("linked", "../outside", str(outside), ".hidden", "none", "swept/trials"):
        assert experiment_at(root, Path(path)) is None


def test_page_is_rebuilt_only_when_its_record_changes(root):
    build_index(root, root / "index.html")
    page = root / "good" / "run.html"
    page.write_text(f"kept, {INDEX_LINK_TEXT}")
    build_index(root, root / "index.html")
    assert page.read_text().startswith("kept")


def test_links_are_relative_to_the_index(root, tmp_path):
    build_index(root, tmp_path / "elsewhere" / "index.html")
    assert 'href="../runs/good/run.html"' in (tmp_path / "elsewhere" / "index.html").read_text()


def test_empty_and_missing_folders_are_explained(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert "no runs or sweeps" in (tmp_path / "index.html").read_text()
    assert main([str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_index_of_two_thousand_runs_is_below_8_mb(tmp_path):
    for seed in range(2000):
        run = replace(record(), config=replace(record().config, seed=seed))
        (tmp_path / f"run-{seed}").mkdir()
        (tmp_path / f"run-{seed}" / "record.json").write_text(json.dumps(run.to_json()))
    experiments = list(find_experiments(tmp_path))
    assert len(experiments) == 2000
    assert len(render_html(build_index_page(experiments, tmp_path, lambda _: None))) < 8e6
