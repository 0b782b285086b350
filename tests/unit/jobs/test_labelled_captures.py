"""Labels that a model is adapted with: counted, exported as an adaptation reads them, in pixels of the photograph."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.boxes.box import LabelledBox
from equipoise.bundle.bundle import load_bundle
from equipoise.captures.store import CaptureStore
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.labelled_images import load_labelled_images
from equipoise.drift.adaptation.workload import (
    ADAPTED_WORKLOAD,
    LABELLED_FOLDER,
    AdaptationRecipe,
    CorruptionAmount,
    DriftCondition,
    read_recipe,
)
from equipoise.drift.diagnosis.verdict import parse_verdict
from equipoise.images.letterbox import fit_letterbox, letterbox_image
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore
from equipoise.workloads import load_workload
from jobs.publishing.adaptation import MIN_LABELS, find_advice, prepare_recipe
from jobs.publishing.labelled_captures import LabelSources, count_labels, export_labels
from jobs.publishing.promotion_gate import measure_accuracy, measure_hand_labelled, passes_gate
from tests.support import boxed_captures, labelling
from tests.support.captures import CLASSES as CLASSIFIED
from tests.support.captures import build_request
from tests.support.errors import raises_code
from tests.support.square_detector import CLASSES, publish_squares, squares

WORKLOAD = "tests.support.square_detector:squares"
DARKER = CorruptionAmount("exposure", "darker", -0.5)
SIZE = (120, 90)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_bundle(publish_squares(tmp_path_factory.mktemp("squares")))


@pytest.fixture(autouse=True)
def classes_of_the_squares(monkeypatch):
    """Captures and labels of these tests have the two classes of the detector."""
    for module in (boxed_captures, labelling):
        monkeypatch.setattr(module, "CLASSES", (*CLASSES, CLASSES[0]))


def build_sources(folder):
    return LabelSources(capture_dir=str(folder / "kept"), labels=folder / "labels")


def build_verdict(**fields):
    return parse_verdict({"state": "drift", "cause": "exposure", "effects": []} | fields)


def test_labelled_boxes_reach_the_model_where_it_would_see_them(model, tmp_path):
    captured = boxed_captures.capture_and_label(tmp_path, 5, labelled=4)
    sources = build_sources(tmp_path)
    assert count_labels(sources, model, build_verdict()) == 4
    assert export_labels(sources, model, build_verdict(), tmp_path / LABELLED_FOLDER) == 4
    images, targets = load_labelled_images(tmp_path / LABELLED_FOLDER, squares(None))
    letterbox, store = fit_letterbox(*SIZE, 48), CaptureStore(sources.capture_dir)
    expected = {}
    for metadata, box in captured[:4]:
        with Image.open(io.BytesIO(store.read_png(metadata.id))) as image:
            assert image.size == SIZE  # as it was sent
            pixels, _ = letterbox_image(image, 48)
        sides = letterbox.boxes_to_square(np.array([box.x, box.y, box.width, box.height]))
        expected[pixels.tobytes()] = [CLASSES.index(box.label), *sides]
    assert {image.numpy().tobytes() for image in images} == expected.keys()
    for image, rows in zip(images, targets.tolist(), strict=True):
        assert rows[0][:5] == pytest.approx(expected[image.numpy().tobytes()], abs=1e-4)
        assert all(row[0] == -1 for row in rows[1:])


def test_picture_with_an_unknown_class_is_left_out(model, tmp_path):
    captured = boxed_captures.capture_and_label(tmp_path, 3, labelled=2)
    boxed_captures.save_boxes(tmp_path, captured[2][0].id, (captured[2][1], LabelledBox("pear", 1.0, 1.0, 9.0, 9.0)))
    assert count_labels(build_sources(tmp_path), model, build_verdict()) == 2


def test_labels_without_captures_are_refused(model, tmp_path):
    with raises_code("option-missing", "--capture-dir"):
        LabelSources(labels=tmp_path)
    assert count_labels(LabelSources(), model, build_verdict()) == 0
    sources = LabelSources(capture_dir=str(tmp_path))
    assert export_labels(sources, model, build_verdict(), tmp_path / "out") == 0 and not (tmp_path / "out").exists()


def test_classes_of_the_page_are_labels_of_a_classifier(tmp_path):
    store, labels = CaptureStore(str(tmp_path / "kept"), 20), LabelStore(tmp_path / "labels")
    labels.add_classes("class", CLASSIFIED)
    for seed in range(4):
        store.offer(build_request(seed=seed, side=16))
    first, second, third, _ = store.list_captures()
    store.label_capture(first.id, "ant", CLASSIFIED)
    for capture, label in ((first, "bee"), (second, "bee"), (third, "cat")):
        (path,) = (tmp_path / "kept").glob(f"*-{capture.id}*.png")
        name = path.name.replace("-labelled", "")
        labels.save_labels(PictureLabels(picture=name, width=16, height=16, label=label), 0)
    classifier = SimpleNamespace(classes=["ant", "bee"])
    assert count_labels(build_sources(tmp_path), classifier, build_verdict()) == 2
    assert export_labels(build_sources(tmp_path), classifier, build_verdict(), tmp_path / "out") == 2
    assert {path.parent.name for path in (tmp_path / "out").glob("*/*.png")} == {"bee"}  # the page has the last word


@pytest.mark.parametrize(("count", "is_fitted"), [(12, False), (30, True)])
def test_recipe_of_a_detector_trains_on_the_labelled_boxes(model, tmp_path, capsys, count, is_fitted):
    boxed_captures.capture_and_label(tmp_path, count)
    recipe = AdaptationRecipe(WORKLOAD, "data", DriftCondition((DARKER,)))
    prepared = prepare_recipe(build_sources(tmp_path), model, recipe, build_verdict(), tmp_path)
    assert prepared == read_recipe(tmp_path) and prepared.train == count - round(0.3 * count)
    assert (prepared.drift != recipe.drift) == is_fitted == ("fine-tunes" in capsys.readouterr().out)
    base = load_workload(TrainConfig(workload=WORKLOAD))
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(tmp_path)))
    assert len(adapted.train) == 8 * len(base.train) + 6 * prepared.train
    labelled = adapted.train.inputs[-6 * prepared.train :]
    assert len({image.numpy().tobytes() for image in labelled}) <= prepared.train
    widths = {split.targets.shape[1] for split in (adapted.train, adapted.validation, adapted.reference, adapted.test)}
    assert len(widths) == 1


def test_more_boxes_than_the_training_images_have_find_a_place(model, tmp_path):
    ((metadata, _),) = boxed_captures.capture_and_label(tmp_path, 1, labelled=0)
    many = [LabelledBox("red", 9.0 * index, 5.0, 8.0, 8.0) for index in range(9)]
    boxed_captures.save_boxes(tmp_path, metadata.id, many)
    recipe = AdaptationRecipe(WORKLOAD, "data", DriftCondition((DARKER,)))
    prepare_recipe(build_sources(tmp_path), model, recipe, build_verdict(), tmp_path)
    base = load_workload(TrainConfig(workload=WORKLOAD))
    adapted = load_workload(TrainConfig(workload=ADAPTED_WORKLOAD, data=str(tmp_path)))
    assert adapted.test.targets.shape[1] == adapted.train.targets.shape[1] == 9
    used = (adapted.test.targets[..., 0] >= 0).sum()
    assert used == 2 * (base.test.targets[..., 0] >= 0).sum()
    assert (adapted.train.targets[-1, :, 0] >= 0).all()


def test_boxes_drawn_by_hand_are_judged_at_an_overlap_of_one_half(model):
    split = squares(None).test
    shifted = split.targets.clone()
    shifted[..., 1:3] += 1.0  # an overlap of 0.62
    imprecise = type(split)(split.inputs, torch.where(split.targets[..., :1] >= 0, shifted, split.targets))
    assert measure_accuracy(model, split) > 0.99 and measure_hand_labelled(model, split) > 0.99
    assert measure_accuracy(model, imprecise) < 0.5
    assert measure_hand_labelled(model, imprecise) > 0.95


def test_gate_measures_the_pictures_that_were_held_out(model, tmp_path, capsys):
    boxed_captures.capture_and_label(tmp_path, 10)
    recipe = AdaptationRecipe(WORKLOAD, "data", DriftCondition())
    prepared = prepare_recipe(build_sources(tmp_path), model, recipe, build_verdict(), tmp_path)
    assert prepared.train == 7
    passes_gate(model, model, prepared, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("labelled") for line in lines)


def test_gate_refuses_where_held_out_pictures_hold_nothing_to_find(model, tmp_path, capsys):
    for metadata, _ in boxed_captures.capture_and_label(tmp_path, 10, labelled=0):
        boxed_captures.save_boxes(tmp_path, metadata.id, ())
    recipe = AdaptationRecipe(WORKLOAD, "data", DriftCondition())
    prepared = prepare_recipe(build_sources(tmp_path), model, recipe, build_verdict(), tmp_path)
    assert not passes_gate(model, model, prepared, tmp_path)
    lines = capsys.readouterr().out
    assert "refused: no held-out images show the drift" in lines and "nan" not in lines


@pytest.mark.parametrize("cause", ["features", "number of boxes", "size of boxes", "classes of boxes"])
def test_thirty_labels_are_enough_where_no_light_explains_it(cause):
    assert "label" in find_advice(cause, MIN_LABELS - 1, False)
    assert find_advice(cause, MIN_LABELS, False) is None
