"""Recipe of an adaptation: from a verdict and labelled captures to what the model is trained on."""

from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.captures.store import CaptureStore
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.label_prior import label_shift_weights
from equipoise.drift.adaptation.workload import (
    LABELLED_FOLDER,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    apply_corruptions,
    read_recipe,
)
from equipoise.drift.diagnosis.verdict import parse_verdict
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.reference.profile import PROFILE_PARTS, profile_from_arrays
from equipoise.workloads import load_workload
from jobs.publishing.adaptation import build_recipe, describe_condition, load_profile, prepare_recipe
from jobs.publishing.labelled_captures import LabelSources, count_labels
from tests.support.captures import CLASSES, build_request
from tests.support.drift_data import score_shapes
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest

CONFIG = TrainConfig(workload="digits", data="photos")
DARKER = CorruptionAmount("exposure", "darker", -1.0)
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
NUM_FEATURES = 9
CONFUSION = 0.8 * np.eye(4) + 0.05
"""share of each true class (column) that is predicted as each class (row)"""
EFFECT = {"cause": "exposure", "detail": "darker", "value": -1.0}


def build_reference_arrays():
    """Build the arrays of a reference of four classes and nine features, of which only prior and confusion matter."""
    parts = {f"{name}.{field.name}": np.zeros((4, 4)) for name, part in PROFILE_PARTS.items() for field in fields(part)}
    schema = IMAGE_SCHEMA.to_arrays()
    others = {
        "figures": schema.pop("name"),
        "directions": np.zeros((NUM_FEATURES, 2)),
        "ranked": np.zeros((len(IMAGE_SCHEMA), 1)),
    }
    others |= {f"schema.{name}": value for name, value in schema.items()}
    scalars = {"temperature": np.array(1.0), "wider": np.array(0.0)}
    labelled = {"labelled.prior": PRIOR, "labelled.confusion": CONFUSION}
    return {f"drift.{name}": value for name, value in (parts | others | scalars | labelled).items()}


def list_outputs(classes, num_features=NUM_FEATURES):
    """Return the outputs of a classifier with these classes."""
    return (
        TensorSpec(name="logits", dtype="float32", shape=(-1, len(classes))),
        TensorSpec(name="features", dtype="float32", shape=(-1, num_features)),
    )


def build_model(classes=CLASSES, **fields):
    """Build what an adaptation needs of a bundle: its classes, its manifest and its engine."""
    manifest = build_manifest(classes=[*classes], config=asdict(CONFIG), outputs=list_outputs(classes), **fields)
    return SimpleNamespace(
        classes=[*classes],
        shape=(3, 32, 32),
        manifest=manifest,
        folder=Path("bundle"),
        run_engine=score_shapes,
        load_reference_arrays=build_reference_arrays,
    )


def build_verdict(since=None, **fields):
    onset = {} if since is None else {"since": {"at": datetime.fromtimestamp(since, UTC).isoformat()}}
    return parse_verdict({"state": "drift", "cause": "exposure", "effects": [EFFECT]} | onset | fields)


def test_recipe_has_the_corruptions_of_the_verdict_and_the_workload_of_the_model():
    noise = {"cause": "noise", "detail": "", "value": 12.5}
    recipe = build_recipe(build_model(), build_verdict(effects=[EFFECT, noise]), None)
    assert recipe == AdaptationRecipe(
        workload="digits",
        data=str(Path("photos").absolute()),
        drift=DriftCondition((DARKER, CorruptionAmount("noise", "", 12.5))),
        before=DriftCondition(),
    )


def test_recipe_takes_the_data_from_where_they_lie_now(tmp_path):
    assert build_recipe(build_model(), build_verdict(), str(tmp_path)).data == str(tmp_path)
    assert build_recipe(build_model(), build_verdict(), "elsewhere").data == str(Path("elsewhere").absolute())


def test_recipe_goes_on_from_earlier_adaptations():
    before = DriftCondition((CorruptionAmount("contrast", "lower", 0.5),), {"ant": 2.0})
    recipe = build_recipe(build_model(remedy=asdict(before)), build_verdict(), None)
    assert recipe.before == before and recipe.combined_condition.changes == (*before.changes, DARKER)


def test_recipe_for_label_shift_has_the_new_class_shares():
    counts = np.array([100.0, 300.0, 600.0, 0.0])
    verdict = build_verdict(cause="label shift", effects=[], classes={"c": 600, "b": 300, "a": 100})
    profile = profile_from_arrays(build_reference_arrays(), ["a", "b", "c", "d"], 9)
    expected = label_shift_weights(profile, counts).tolist()
    recipe = build_recipe(build_model("abcd"), verdict, None)
    assert recipe.drift == DriftCondition((), dict(zip("abcd", expected, strict=True)))
    assert expected[2] > 2 > expected[0]


def test_label_shift_needs_requests():
    with raises_code("adaptation-impossible", "only 7 requests"):
        build_recipe(build_model("abcd"), build_verdict(cause="label shift", effects=[], classes={"b": 7}), None)


def test_profile_of_a_model_with_other_features_is_refused():
    model = build_model("abcd")
    assert load_profile(model).class_names == ("a", "b", "c", "d")
    model.manifest = replace(model.manifest, outputs=list_outputs("abcd", num_features=5))
    with raises_code("reference-unusable", "5 features"):
        load_profile(model)


@pytest.fixture
def store(tmp_path):
    """Return a store of six captures: three are labelled as ants, one as a bee, one as a hen, and one not at all."""
    store = CaptureStore(str(tmp_path / "captures"))
    for index in range(6):
        store.offer(build_request(seed=index, side=16, channels=1))
    for capture, label in zip(store.list_captures(), ["ant", "ant", "ant", "bee", "hen"], strict=False):
        store.label_capture(capture.id, label, [*CLASSES, "hen"])
    return store


def test_labels_of_the_classes_of_the_model_are_counted(store):
    assert count_labels(LabelSources(capture_dir=store.location), build_model(), build_verdict()) == 4
    assert count_labels(LabelSources(capture_dir=store.location), build_model(["hen"]), build_verdict()) == 1
    assert count_labels(LabelSources(), build_model(), build_verdict()) == 0


def test_labels_count_from_the_moment_at_which_the_drift_began(store):
    times = sorted(capture.at for capture in store.list_captures() if capture.label_given in CLASSES)
    for later, onset in enumerate(times):
        verdict = build_verdict(since=onset)
        assert count_labels(LabelSources(capture_dir=store.location), build_model(), verdict) == sum(
            at >= verdict.onset_seconds for at in times
        )
        assert abs(verdict.onset_seconds - onset) < 1e-5 and later < len(times)
    assert (
        count_labels(LabelSources(capture_dir=store.location), build_model(), build_verdict(since=times[-1] + 1)) == 0
    )


def test_adaptation_is_described_in_words():
    shares = "at 40% to 140% of that size,"
    assert describe_condition(DriftCondition(), 0) == "fine-tunes on the training images and 0 labelled images"
    assert describe_condition(DriftCondition((DARKER,)), 12) == (
        f"fine-tunes on the training images under exposure darker -1 stops, {shares} and 12 labelled images"
    )
    noise = CorruptionAmount("noise", "", 12.345)
    assert f"under exposure darker -1 stops and noise 12.3 levels of 255, {shares}" in describe_condition(
        DriftCondition((DARKER, noise)), 1
    )


def test_classes_whose_shares_changed_most_are_listed():
    weights = {"a": 1.0, "b": 0.1, "c": 2.0, "d": 0.4, "e": 8.0}
    assert describe_condition(DriftCondition((), weights), 3) == (
        "expects new class shares: b 0.1 times as often, e 8 times as often, d 0.4 times as often"
    )
    assert describe_condition(DriftCondition((), {"a": 2.0}), 0) == "expects new class shares: a 2 times as often"


def label_digits(location, pictures, labels):
    """Capture images of digits and label them."""
    store = CaptureStore(str(location), 2 * len(labels) + 2)
    classes = [str(digit) for digit in range(10)]
    for picture, label in zip(pictures, labels, strict=True):
        known = {capture.id for capture in store.list_captures(limit=None)}
        store.offer(build_request(picture=picture.numpy(), scores=dict.fromkeys(classes, 0.1), label="0"))
        [new] = [capture for capture in store.list_captures(limit=None) if capture.id not in known]
        store.label_capture(new.id, classes[label], classes)
    return str(location)


@pytest.mark.parametrize(("count", "train"), [(1, 1), (10, 7), (25, 17)])
def test_three_tenths_of_the_labelled_images_are_held_out(tmp_path, count, train):
    split = load_workload(CONFIG).test
    location = label_digits(tmp_path / "captures", split.inputs[:count], split.targets[:count])
    recipe = AdaptationRecipe("digits", "photos", DriftCondition())
    model = build_model([str(digit) for digit in range(10)])
    prepared = prepare_recipe(LabelSources(capture_dir=location), model, recipe, build_verdict(), tmp_path)
    assert prepared == replace(recipe, train=train) == read_recipe(tmp_path)
    assert len([*(tmp_path / LABELLED_FOLDER).glob("*/*.png")]) == count


def test_recipe_without_labelled_images_stays_as_it_is(tmp_path):
    recipe, model = AdaptationRecipe("digits", "photos", DriftCondition((DARKER,))), build_model()
    CaptureStore(str(tmp_path / "empty")).offer(build_request())
    for location in (None, str(tmp_path / "empty")):
        assert (
            prepare_recipe(LabelSources(capture_dir=location), model, recipe, build_verdict(), tmp_path)
            == recipe
            == read_recipe(tmp_path)
        )


@pytest.mark.parametrize(("count", "is_fitted"), [(29, False), (30, True)])
def test_corruptions_are_fitted_to_thirty_labelled_images(tmp_path, capsys, count, is_fitted):
    split = load_workload(CONFIG).test
    before = DriftCondition((CorruptionAmount("contrast", "lower", 0.6),))
    recipe = AdaptationRecipe("digits", "photos", DriftCondition((replace(DARKER, value=-0.4),)), before)
    pictures = apply_corruptions(split.inputs[:count], (*before.changes, DARKER))
    location = label_digits(tmp_path / "captures", pictures, split.targets[:count])
    model = build_model([str(digit) for digit in range(10)])
    prepared = prepare_recipe(LabelSources(capture_dir=location), model, recipe, build_verdict(), tmp_path)
    assert prepared == read_recipe(tmp_path) and prepared.before == before
    printed = capsys.readouterr().out
    if not is_fitted:
        assert prepared.drift == recipe.drift and printed == ""
        return
    [exposure] = [change for change in prepared.drift.changes if change.cause == "exposure"]
    assert exposure.value == pytest.approx(-1.0, abs=0.3)
    assert printed == describe_condition(prepared.drift, count) + "\n"
