import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.drift.adaptation.workload import AdaptationRecipe, CorruptionAmount, DriftCondition
from equipoise.errors import EquipoiseError
from jobs.publishing.adaptation import training_history
from jobs.publishing.bundle_link import point_link
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support.adapt_command import run_adapt

DARK = {"cause": "exposure", "detail": "darker", "value": -1.0}
DRIFT = {"state": "drift", "why": "exposure: darker", "cause": "exposure", "effects": [DARK]}


@pytest.fixture
def dry_run(digits_bundle, tmp_path, capsys):
    """Return a function that does a dry run on a verdict and returns its exit status and output."""

    def run_on_verdict(verdict, *arguments):
        path = tmp_path / "verdict.json"
        path.write_text(verdict if isinstance(verdict, str) else json.dumps(verdict))
        status = run_adapt("--bundle", digits_bundle, "--verdict", path, "--dry-run", *arguments)
        return status, capsys.readouterr()

    return run_on_verdict


def test_link_is_switched_and_rolled_back(digits_bundle, tmp_path, monkeypatch):
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "served"
    for folder in (old, new):
        folder.symlink_to(digits_bundle)
    link.symlink_to("old")  # relative, as `ln -s old served` makes it
    monkeypatch.chdir(tmp_path.parent)
    point_link(link, new)
    assert link.readlink() == new
    assert run_adapt("--link", link, "--roll-back", "--dry-run") == 0 and link.readlink() == new
    assert run_adapt("--link", link, "--roll-back") == 0
    assert link.readlink() == old
    assert run_adapt("--bundle", "none", "--link", link, "--roll-back") == 0  # a second roll-back undoes the first
    assert link.readlink() == new


@pytest.mark.parametrize("recorded_target", ['"gone"', '""', "3", "null", "{"])
def test_link_is_not_rolled_back_to_an_invalid_target(tmp_path, recorded_target, capsys):
    (tmp_path / "served").symlink_to(tmp_path / "now")
    (tmp_path / ".served.before").write_text(recorded_target)
    assert run_adapt("--bundle", "none", "--link", tmp_path / "served", "--roll-back") == 2
    assert (tmp_path / "served").readlink() == tmp_path / "now"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--roll-back",), "--link is missing"),
        (("--roll-back", "--link", "nowhere"), "no previous bundle is recorded"),
        (("--verdict", "v.json"), "is not a bundle"),
        (("--verdict", "v.json", "--out", "there"), "already exists"),
        (("--verdict", "v.json", "--out", "there/file/out"), "is not a writable folder"),
        (("--verdict", "v.json", "--link", "there"), "is not a symbolic link"),
        (("--verdict", "v.json", "--link", "none/link"), "is not a folder; create it first"),
        (("--verdict", "v.json", "--capture-dir", "none"), "is not a folder"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence_before_training(
    arguments, message, tmp_path, capsys, monkeypatch
):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert run_adapt("--bundle", tmp_path / "none", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_bundle_is_not_published_into_another(dry_run, digits_bundle):
    status, output = dry_run(DRIFT, "--out", digits_bundle / "inner")
    assert status == 2 and "would damage the bundle" in output.err


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        ("{", "JSON"),
        ([], "is not a verdict"),
        ({"label": "cat"}, "missing required field `state`"),
        ({"state": "drift"}, "unknown cause None; choose one of: colour temperature"),
        (DRIFT | {"cause": "gremlins"}, "unknown cause 'gremlins'"),
        (DRIFT | {"cause": []}, "cause: expected"),
        (DRIFT | {"effects": None}, "effects: expected"),
        (DRIFT | {"effects": [{}]}, "effects[0]: object missing required field `cause`"),
        (DRIFT | {"effects": [DARK | {"value": "x"}]}, "effects[0].value: expected `float`"),
        (json.dumps(DRIFT | {"effects": [DARK | {"value": float("nan")}]}), "NaN and Infinity are not allowed"),
        (DRIFT | {"effects": [DARK | {"detail": "purple"}]}, "names exposure 'purple'"),
        (DRIFT | {"effects": [{"cause": "tint", "detail": "greener", "value": 0.1}]}, "images cannot show"),
        (DRIFT | {"effects": []}, "gives no size for exposure"),
        (DRIFT | {"model": "vending"}, "is on model vending, --bundle is digits"),
        (DRIFT | {"version": "abc"}, "is on version abc"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": [1, 2]}, "classes: expected `object`"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"0": -1}}, "classes[...]: expected `int` >= 0"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"cat": 9}}, "lacks its class 'cat'"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"0": 900}}, "no reference to compare with"),
    ],
)
def test_invalid_verdict_is_refused_in_one_sentence(dry_run, verdict, message):
    status, output = dry_run(verdict)
    assert status == 2 and message in output.err and output.err.count("\n") == 1


def test_dry_run_prints_what_adaptation_would_do(dry_run):
    status, output = dry_run(DRIFT)
    assert (
        status == 0
        and "under exposure darker -1 stops, at 40% to 140% of that size, and 0 labelled images" in output.out
    )
    status, output = dry_run({"state": "ok", "why": "all is well"})
    assert status == 0 and output.out == "nothing to adapt to: all is well\n"
    status, output = dry_run(DRIFT | {"cause": "blur", "effects": []})
    assert status == 4 and "clean or focus the lens" in output.out


def test_blur_is_adapted_to_only_where_it_is_there_to_stay(dry_run):
    effect = {"cause": "blur", "detail": "", "value": 0.8}
    verdict = DRIFT | {"cause": "blur", "effects": [effect]}
    status, output = dry_run(verdict)
    assert status == 4 and "--accept-blur" in output.out
    status, output = dry_run(verdict, "--accept-blur")
    assert status == 0 and "under blur 0.8 pixels" in output.out
    status, output = dry_run(DRIFT | {"cause": "new class", "effects": []}, "--accept-blur")
    assert status == 4 and "train with a class" in output.out


def test_labels_from_before_the_drift_are_not_used(dry_run, tmp_path):
    store, picture = CaptureStore(str(tmp_path / "kept"), 100), np.zeros((1, 16, 16), np.uint8)
    capture = CapturedRequest(picture=picture, model="digits", version="1", label="7", scores={"7": 1.0})
    store.offer(capture)
    before = datetime.now(UTC).isoformat()
    store.offer(capture)
    for row in store.list_captures(limit=None):
        store.label_capture(row.id, "7", ["7"])
    for onset, count in ((before, 1), ("2020-01-01T00:00:00+00:00", 2)):
        status, output = dry_run(DRIFT | {"since": {"at": onset, "images_ago": 5}}, "--capture-dir", tmp_path / "kept")
        assert status == 0 and f"{count} labelled images" in output.out
    status, output = dry_run(DRIFT | {"since": {"at": "then"}}, "--capture-dir", tmp_path / "kept")
    assert status == 2 and "since: " in output.err
    assert sum(store.export_labelled(tmp_path / "out", ["7"], datetime.fromisoformat(before).timestamp()).values()) == 1


def test_labels_that_are_not_classes_of_the_bundle_are_not_used(dry_run, tmp_path):
    store, picture = CaptureStore(str(tmp_path / "kept"), 100), np.zeros((1, 16, 16), np.uint8)
    for _ in range(45):
        store.offer(
            CapturedRequest(picture=picture, model="pets", version="1", label="cat", scores={"cat": 0.5, "7": 0.5})
        )
    for index, row in enumerate(store.list_captures(limit=None)):
        store.label_capture(row.id, "7" if index < 4 else "cat", ["cat", "7"])
    status, output = dry_run(DRIFT | {"cause": "features", "effects": []}, "--capture-dir", tmp_path / "kept")
    assert status == 4 and "4 labelled images" in output.out


def test_bundle_without_its_training_history_is_refused(digits_bundle):
    model = load_bundle(digits_bundle)
    published = model.manifest
    without_lr = {name: value for name, value in published.config.items() if name != "lr"}
    for config in ({}, without_lr, published.config | {"new": 1}, published.config | {"lr": "x"}):
        assert_history_is_refused(model, replace(published, config=config))
    weather = {"cause": "weather", "detail": "", "value": 1}
    for remedy in ({"changes": 3}, {"changes": [{}]}, {"changes": [weather]}, {"changes": [], "weights": {"0": "x"}}):
        assert_history_is_refused(model, replace(published, remedy=remedy))


def test_adapted_bundle_names_its_first_workload_and_the_drift_that_it_knows(digits_bundle, tmp_path):
    before = DriftCondition((CorruptionAmount("contrast", "lower", 0.5),))
    drift = DriftCondition((CorruptionAmount("exposure", "darker", -1.0),), {"0": 2.0})
    recipe = AdaptationRecipe("digits", "photos", drift, before)
    request = PublishRequest(run=digits_bundle.parent / "run", out=tmp_path / "adapted", native=False, drift=False)
    publish_bundle(request, recipe)
    config, known = training_history(load_bundle(tmp_path / "adapted"))
    assert (config.workload, config.data) == ("digits", "photos") and known == recipe.combined_condition
    card = (tmp_path / "adapted" / "card.md").read_text()
    assert "Adapted to a drift of its requests: contrast lower 0.5, exposure darker -1, 0 2 times as often." in card


def assert_history_is_refused(model, manifest):
    model.manifest = manifest
    with pytest.raises(EquipoiseError) as error:
        training_history(model)
    assert error.value.code == "bundle-invalid" and len(str(error.value).splitlines()) == 1


def test_texts_of_a_verdict_show_no_control_characters(dry_run):
    _, output = dry_run({"state": "ok", "why": "\x1b[31mred\nerror: fake"})
    assert r"\x1b[31mred\nerror: fake" in output.out and output.out.count("\n") == 1


def test_link_replaces_the_bundle_option(digits_bundle, tmp_path, capsys):
    (tmp_path / "served").symlink_to(digits_bundle)
    (tmp_path / "verdict.json").write_text(json.dumps(DRIFT))
    assert run_adapt("--link", tmp_path / "served", "--verdict", tmp_path / "verdict.json", "--dry-run") == 0
    assert run_adapt("--verdict", tmp_path / "verdict.json", "--dry-run") == 2
    assert "give --bundle with its bundle, or --link" in capsys.readouterr().err
