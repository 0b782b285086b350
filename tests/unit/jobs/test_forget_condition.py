"""`jobs.adapt --forget`: a copy of a bundle without one of the conditions that it has learned."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import AdaptationRecipe, CorruptionAmount, DriftCondition, apply_corruptions
from equipoise.workloads import load_workload
from jobs.adapt import main
from jobs.publishing.adaptation import load_profile
from jobs.publishing.bundle_copy import load_reference_workload
from jobs.publishing.forget_condition import remove_condition
from jobs.publishing.known_conditions import LearnedCondition, condition_entries, load_learned_conditions
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support.bundles import train_short_run
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest

DARKER = DriftCondition((CorruptionAmount("exposure", "darker", -1.0),))
PALER = DriftCondition((CorruptionAmount("contrast", "lower", 0.5),))
CONFIG = TrainConfig(workload="digits")
DIGITS = [str(digit) for digit in range(10)]


def run_adapt(*arguments):
    return main([str(argument) for argument in arguments])


def build_learned(name, condition):
    images = apply_corruptions(load_workload(CONFIG).reference.inputs[:150], condition.changes)
    return LearnedCondition(name, condition, images, 0.5)


def publish_learned(run, out, learned, drift=False):
    """Publish a run as the result of adaptations to these conditions, and return the bundle's folder."""
    recipe = AdaptationRecipe(
        CONFIG.workload, CONFIG.data, learned[-1].condition if learned else DriftCondition((), dict.fromkeys(DIGITS, 1))
    )
    publish_bundle(PublishRequest(run=run, out=out, native=False, drift=drift), recipe, learned)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_short_run(tmp_path_factory.mktemp("forget") / "run", examples=320)


@pytest.fixture(scope="module")
def learned():
    return [build_learned("darker", DARKER), build_learned("paler", PALER)]


@pytest.fixture(scope="module")
def plain(run, learned):
    """A bundle that has learned two conditions, without a drift profile, which takes half a minute to build."""
    return publish_learned(run, run.parent / "plain", learned)


def test_copy_has_the_same_model_and_knows_the_other_condition_only(plain, run, learned, tmp_path):
    assert run_adapt("--bundle", plain, "--forget", "paler", "--out", tmp_path / "new") == 0
    old, new = load_bundle(plain), load_bundle(tmp_path / "new")
    assert new.version != old.version and new.manifest.metrics == old.manifest.metrics
    assert old.manifest.files.keys() == new.manifest.files.keys()
    same = {name for name in old.manifest.files if old.manifest.files[name] == new.manifest.files[name]}
    assert old.manifest.files.keys() - same == {"reference.npz", "card.md"}
    assert [entry.name for entry in new.manifest.conditions] == ["darker"]
    card = (new.folder / "card.md").read_text()
    assert "darker -1" in card and "contrast" not in card
    never = load_bundle(publish_learned(run, tmp_path / "never", learned[:1]))
    assert new.manifest.remedy == never.manifest.remedy
    assert_same_reference(new, never)


@pytest.mark.slow
@pytest.mark.thorough
def test_profile_is_that_of_a_bundle_that_never_learned_the_condition(run, learned, tmp_path):
    publish_learned(run, tmp_path / "old", learned, drift=True)
    publish_learned(run, tmp_path / "never", learned[:1], drift=True)
    assert run_adapt("--bundle", tmp_path / "old", "--forget", "paler", "--out", tmp_path / "new") == 0
    old, new, never = (load_bundle(tmp_path / name) for name in ("old", "new", "never"))
    assert_same_reference(new, never)
    profile, other_profile = load_profile(new), load_profile(never)
    assert set(load_profile(old).condition_names) == {"as published", "darker", "paler"}
    assert profile.condition_names == other_profile.condition_names
    np.testing.assert_array_equal(profile.baseline.usual.counts, other_profile.baseline.usual.counts)
    np.testing.assert_allclose(profile.baseline.usual.mean, other_profile.baseline.usual.mean, rtol=1e-3, atol=1e-3)


def assert_same_reference(bundle, other):
    """Compare the arrays of two bundles of one model, whose engines may differ in the last digits."""
    arrays, others = (part.load_reference_arrays() for part in (bundle, other))
    assert arrays.keys() == others.keys()
    for name in ("labels", "pictures", "places", "condition 0"):
        np.testing.assert_array_equal(arrays[name], others[name])
    np.testing.assert_allclose(arrays["logits"], others["logits"], atol=1e-3)


def test_only_learned_condition_can_be_forgotten_too(plain, tmp_path, learned):
    assert run_adapt("--bundle", plain, "--forget", "darker", "--out", tmp_path / "paler") == 0
    assert run_adapt("--bundle", tmp_path / "paler", "--forget", "paler", "--out", tmp_path / "none") == 0
    paler, none = load_bundle(tmp_path / "paler"), load_bundle(tmp_path / "none")
    [kept] = load_learned_conditions(paler)
    assert (kept.name, kept.condition) == ("paler", PALER) and kept.images.equal(learned[1].images)
    assert (none.manifest.conditions, none.manifest.remedy) == ((), None)
    assert not [name for name in none.load_reference_arrays() if name.startswith("condition")]
    assert "Adapted to a drift" not in (tmp_path / "none" / "card.md").read_text()


def test_link_is_pointed_to_the_copy_and_back(plain, tmp_path, capsys):
    link = tmp_path / "served"
    link.symlink_to(plain)
    assert run_adapt("--link", link, "--forget", "paler", "--dry-run") == 0
    assert "without paler would be published" in capsys.readouterr().out and link.readlink() == plain
    assert run_adapt("--link", link, "--forget", "paler", "--out", tmp_path / "new") == 0
    assert link.readlink() == tmp_path / "new" and [*tmp_path.glob(".new*")] == []
    assert run_adapt("--link", link, "--roll-back") == 0 and link.readlink() == plain


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("cooler",), "option-choice", ["'cooler'", "choose one of: darker; paler"]),
        (("as published",), "option-choice", ["cannot forget 'as published'"]),
        (("",), "option-choice", ["choose one of"]),
        (("paler", "--verdict", "v.json"), "option-conflict", ["--forget with --verdict"]),
        (("paler", "--service", "http://127.0.0.1:1"), "option-conflict", ["--forget with --service"]),
        (("paler", "--roll-back"), "option-conflict", ["--forget with --roll-back"]),
        (("paler",), "option-missing", ["--out is missing"]),
    ],
)
def test_what_cannot_be_forgotten_is_refused_in_one_sentence(plain, tmp_path, capsys, arguments, code, words):
    out = () if code == "option-missing" else ("--out", tmp_path / "new")
    assert run_adapt("--bundle", plain, *out, "--forget", *arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.endswith(f"[{code}]\n") and all(word in error for word in words)
    assert [*tmp_path.iterdir()] == []


def test_bundle_that_has_learned_nothing_has_nothing_to_forget(run, tmp_path, capsys):
    folder = publish_learned(run, tmp_path / "bundle", [])
    assert run_adapt("--bundle", folder, "--forget", "darker", "--out", tmp_path / "new") == 2
    error = capsys.readouterr().err
    assert "forgetting the only condition" in error and error.count("\n") == 1 and not (tmp_path / "new").exists()


def test_data_of_another_workload_are_refused(plain):
    bundle = load_bundle(plain)
    bundle.classes = ["cat", "dog"]
    with raises_code("workload-invalid", plain, "--data"):
        load_reference_workload(bundle, None)


def test_reference_keeps_the_class_shares_that_the_model_expects():
    weights = {digit: 3.0 if digit == "7" else 1.0 for digit in DIGITS}
    manifest = build_manifest(classes=DIGITS, config=asdict(CONFIG), remedy=asdict(DriftCondition((), weights)))
    model = SimpleNamespace(folder="bundle", classes=DIGITS, manifest=manifest, shape=(1, 16, 16))
    shape = load_workload(CONFIG).reference.inputs[0].shape
    workload = load_reference_workload(SimpleNamespace(**vars(model) | {"shape": shape}), None)
    for split in (workload.reference, workload.false_alarm_split):
        counts = np.bincount(split.targets, minlength=10)
        assert counts[7] / np.delete(counts, 7).mean() == pytest.approx(3.0, rel=0.15)
    with raises_code("workload-invalid"):
        load_reference_workload(SimpleNamespace(**vars(model) | {"shape": (3, 1, 1)}), None)


@pytest.mark.parametrize(
    ("remedy", "forgotten", "expected"),
    [
        (PALER, "paler", DARKER),
        (PALER, "darker", PALER),
        (DARKER, "darker", PALER),  # the last adaptation went on from an earlier condition
        (replace(PALER, weights={"cat": 2.0}), "paler", replace(DARKER, weights={"cat": 2.0})),
    ],
)
def test_remedy_is_that_of_the_latest_condition_that_is_left(learned, remedy, forgotten, expected):
    manifest = build_manifest(conditions=condition_entries(learned), remedy=asdict(remedy))
    new = remove_condition(manifest, forgotten)
    assert DriftCondition.from_json(new.remedy) == expected
    assert forgotten not in [entry.name for entry in new.conditions] and len(new.conditions) == 1


def test_class_shares_are_not_forgotten_with_the_only_condition(learned):
    weights = {"cat": 2.0}
    remedy = replace(DARKER, weights=weights)
    manifest = build_manifest(conditions=condition_entries(learned[:1]), remedy=asdict(remedy))
    assert DriftCondition.from_json(remove_condition(manifest, "darker").remedy) == DriftCondition((), weights)
    without_shares = remove_condition(replace(manifest, remedy=asdict(DARKER)), "darker")
    assert without_shares.remedy is None and "remedy" not in without_shares.to_json()


def test_adapting_to_the_same_change_again_is_refused(plain, tmp_path, capsys):
    verdict = tmp_path / "verdict.json"
    effect = {"cause": "exposure", "detail": "darker", "value": -1.05}
    contents = {"state": "drift", "cause": "exposure", "why": "darker", "effects": [effect]}
    for condition, status in (({"condition": "as published"}, 2), ({}, 2), ({"condition": "paler"}, 0)):
        verdict.write_text(json.dumps(contents | condition))
        assert run_adapt("--bundle", plain, "--verdict", verdict, "--dry-run") == status
        error = capsys.readouterr().err
        assert ("knows this condition already, as 'darker'" in error) == (status == 2)
        assert error.count("\n") == status // 2
