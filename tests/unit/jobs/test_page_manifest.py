"""What a page knows of its model, and which models have no page."""

import json
from dataclasses import replace

import pytest

from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.text_input import TextInput
from equipoise.bundle.tensor_spec import TensorSpec
from jobs.publishing.browser.page_manifest import build_page_manifest
from tests.support.errors import raises_code
from tests.support.manifests import IMAGE_INPUT, build_manifest

FEATURES = TensorSpec(name="features", dtype="float32", shape=(-1, 5))


def build_detector_manifest():
    boxes = BoxesInput(image=replace(IMAGE_INPUT, height=48), max_boxes=7)
    metrics = DetectionEvaluation(
        average_precision=0.5, average_precision_50=0.75, by_class={}, threshold=0.375, precision=0.9, recall=0.8
    )
    outputs = (*boxes.list_box_outputs(), FEATURES)
    return build_manifest(
        kind="boxes", image=None, boxes=boxes, inputs=boxes.list_inputs(), outputs=outputs, metrics=metrics
    )


def test_page_of_a_detector_fits_whole_pictures_and_knows_the_threshold():
    page = json.loads(json.dumps(build_page_manifest(build_detector_manifest()).to_json()))
    assert page["kind"] == "boxes" and page["classes"] == ["cat", "dog"] and page["schema"] == 1
    assert page["input"] == {"channels": 3, "height": 48, "width": 48, "fit": "letterbox", "fill": [124, 116, 104]}
    assert page["threshold"] == 0.375 and page["temperature"] is None and page["max_pixels"] == 80_000_000


def test_page_of_a_classifier_crops_the_centre_and_knows_the_temperature():
    page = build_page_manifest(build_manifest()).to_json()
    assert page["kind"] == "image" and page["temperature"] == 1.25 and page["threshold"] is None
    assert page["input"] == {"channels": 3, "height": 32, "width": 48, "fit": "crop", "fill": None}


def test_model_of_texts_has_no_page():
    text = TextInput(characters="ab", window=8)
    manifest = build_manifest(
        kind="text",
        classes=[],
        image=None,
        text=text,
        inputs=text.list_inputs(),
        metrics=LanguageEvaluation(nats_per_token=1.5, tokens=10),
    )
    with raises_code("bundle-kind", "cannot export a page for pets", "texts"):
        build_page_manifest(manifest)


@pytest.mark.parametrize("channels", [2, 4])
def test_model_of_other_channels_than_photographs_has_no_page(channels):
    image = replace(IMAGE_INPUT, channels=channels)
    with raises_code("images-invalid", f"{channels} channels"):
        build_page_manifest(build_manifest(image=image, inputs=image.list_inputs()))
