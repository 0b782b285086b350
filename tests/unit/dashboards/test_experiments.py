"""An index over whatever lies in a folder: what is missing, half-written or foreign is told as such."""

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
from dashboards.page import render_html
from dashboards.panels.experiment_index import build_index_page
from equipoise.storage.atomic import write_json
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

WRONG = {
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
    "check/verdict.json": '{"state": "ok"}',
    "begun/trial.json": '{"workload": "digits"}',
}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    write_json(root / "good" / "record.json", record().to_json())
    for name, text in WRONG.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "notes" / "readme.txt").parent.mkdir()
    return root


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(root, capsys):
    write_sweep_folder(root / "swept")
    assert main([str(root)]) == 0
    text = (root / "index.html").read_text()
    for name in {name.split("/")[0] for name in WRONG}:
        assert f"{name}: " in text, name
    assert re.search(r'href="good/run.html"', text) and re.search(r'href="swept/curve.html"', text)
    assert (root / "good/run.html").exists() and (root / "swept/scaling.html").exists()
    assert not list(root.rglob("*/foreign/*.html"))


def test_hostile_records_cost_no_other_its_place(root):
    good = record().to_json()
    deep = json.loads("[" * 600 + "]" * 600)
    write_json(root / "deep" / "record.json", good | {"reason": deep})
    (root / "nan").mkdir()
    laps = [*good["laps"][:-1], good["laps"][-1] | {"metric": float("nan")}]
    (root / "nan" / "record.json").write_text(json.dumps(good | {"laps": laps}))
    write_json(root / "letters" / "bundle.json", {"name": "\ud800", "classes": [], "metrics": {}})
    os.mkdir(os.fsencode(root) + b"/\xff")  # noqa: PTH102 - a name that is no text
    write_json(Path(os.fsdecode(os.fsencode(root) + b"/\xff/record.json")), good)
    for name in ("record.json", "plan.json", "bundle.json", "verdict.json"):
        (root / f"pipe-{name}").mkdir()
        os.mkfifo(root / f"pipe-{name}" / name)
    (root / "page" / "run.html").mkdir(parents=True)
    write_json(root / "page" / "record.json", good)
    os.utime(root / "page" / "run.html", (1e9, 1e9))
    assert main([str(root)]) == 0
    text = (root / "index.html").read_text()
    for name in (
        "good/run.html",
        "letters",
        "\\udcff",
        "nan",
        "record.json: it is not a regular file",
        "page",
        "deep: ",
    ):
        assert name in text
    data = gzip.decompress(base64.b64decode(re.search(r'id="data"[^>]*>([^<]+)', text)[1]))
    json.loads(data, parse_constant=pytest.fail)  # no NaN outside of strings


@pytest.mark.parametrize("out", [".", "/", "folder", "pipe"])
def test_what_is_no_file_is_not_written_to(root, out, capsys):
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    assert main([str(root), "--out", out if out in "./" else str(root / out)]) == 2
    assert "is not a file" in capsys.readouterr().err


def test_plans_with_the_right_names_and_wrong_contents_are_no_crash(root):
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


def test_parts_of_a_sweep_are_not_experiments_of_their_own(tmp_path):
    place = write_sweep_folder(tmp_path / "swept")
    write_json(place / "trials" / "one.json", record().to_json())
    write_json(place / "confirm" / "2x16" / "record.json", record().to_json())
    found = {one.path.relative_to(tmp_path).as_posix(): one for one in find_experiments(tmp_path)}
    assert {name: one.kind for name, one in found.items()} == {"swept": "sweep", "swept/confirm/2x16": "run"}
    assert (
        found["swept"].content.num_trials == len(found["swept"].content.examples_to_target) > 1
    )  # those that were cut off are none


def test_one_folder_is_what_it_is_among_all(root, tmp_path):
    for one in find_experiments(root):
        assert experiment_at(root, one.path.relative_to(root)).kind == one.kind
    outside = tmp_path / "outside"
    write_json(outside / "record.json", record().to_json())
    (root / "linked").symlink_to(outside)
    (root / ".hidden").mkdir()
    write_json(root / ".hidden" / "record.json", record().to_json())
    for place in ("linked", "../outside", str(outside), ".hidden", "none", "swept/trials"):
        assert experiment_at(root, Path(place)) is None


def test_a_page_is_made_anew_only_when_its_record_is(root):
    build_index(root, root / "index.html")
    page = root / "good" / "run.html"
    page.write_text("kept")
    build_index(root, root / "index.html")
    assert page.read_text() == "kept"


def test_links_lead_from_where_the_index_lies(root, tmp_path):
    build_index(root, tmp_path / "elsewhere" / "index.html")
    assert 'href="../runs/good/run.html"' in (tmp_path / "elsewhere" / "index.html").read_text()


def test_an_empty_folder_and_none_are_sentences(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert "no runs or sweeps" in (tmp_path / "index.html").read_text()
    assert main([str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_two_thousand_runs_are_one_light_page(tmp_path):
    for place in range(2000):
        one = replace(record(), config=replace(record().config, seed=place))
        (tmp_path / f"run-{place}").mkdir()
        (tmp_path / f"run-{place}" / "record.json").write_text(json.dumps(one.to_json()))
    found = list(find_experiments(tmp_path))
    assert len(found) == 2000
    assert len(render_html(build_index_page(found, tmp_path, lambda _: None))) < 8e6
