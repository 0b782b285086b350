"""A detector in a service: boxes in pixels of what was sent, tensors, the try page, captures and drift."""

import asyncio
import json

import jsonschema
import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from jobs.check import main
from services.http.openapi import build_openapi_document
from services.limits import Limits
from tests.support.captures import decode_png
from tests.support.detector_service import encode_picture, start_detector_service
from tests.support.square_detector import draw_squares, publish_squares


@pytest.fixture(scope="module")
def bundle_folder(tmp_path_factory):
    return publish_squares(tmp_path_factory.mktemp("squares"))


@pytest.fixture(scope="module")
def model(bundle_folder):
    return load_bundle(bundle_folder)


@pytest.fixture(scope="module")
def pictures():
    """Pictures that are not in the reference, as an array (n, 48, 48, 3)."""
    return draw_squares(48, 99)[0].permute(0, 2, 3, 1).numpy()


@pytest.fixture(scope="module")
def service(bundle_folder, tmp_path_factory):
    with start_detector_service(bundle_folder, tmp_path_factory.mktemp("service")) as started:
        yield started


def test_bundle_is_judged_by_its_average_precision(model):
    assert isinstance(model, BoxesBundle) and model.kind == "boxes"
    metrics = model.manifest.detection
    assert metrics.average_precision > 0.99 and metrics.average_precision <= metrics.average_precision_50
    assert set(metrics.by_class) == set(model.classes) and metrics.precision > 0.99 and metrics.recall > 0.99
    assert 0.1 < model.threshold < 0.9
    card = (model.folder / "card.md").read_text()
    assert "Mean average precision" in card and f"{metrics.threshold:.3f}" in card


def test_every_engine_that_agrees_finds_the_same_boxes(model, pictures):
    agreeing = [result.engine for result in model.manifest.engine.table if result.agrees]
    assert {"eager", "onnxruntime"} <= set(agreeing)
    sources = [encode_picture(pixels) for pixels in pictures]
    found = {name: load_bundle(model.folder, name).find_boxes(sources) for name in ("eager", "onnxruntime")}
    assert sum(map(len, found["eager"])) > 48
    for boxes, others in zip(*found.values(), strict=True):
        rows, other_rows = (  # squares of equal scores may change places
            sorted((box.label, *(round(side) for side in (box.x, box.y, box.width, box.height))) for box in part)
            for part in (boxes, others)
        )
        assert rows == other_rows


def test_boxes_are_answered_in_pixels_of_what_was_sent(service, model, pictures):
    small = service.ask(encode_picture(pictures[0]))
    assert (small["width"], small["height"]) == (48, 48) and small["boxes"]
    scores = [box["score"] for box in small["boxes"]]
    assert scores == sorted(scores, reverse=True) and min(scores) >= model.threshold
    (expected,) = model.find_boxes([encode_picture(pictures[0])])
    assert [box["label"] for box in small["boxes"]] == [box.label for box in expected]
    assert small["boxes"][0]["x"] == pytest.approx(expected[0].x, abs=0.02)
    large = service.ask(
        encode_picture(np.asarray(Image.fromarray(pictures[0]).resize((480, 480), Image.Resampling.NEAREST)))
    )
    assert (large["width"], large["height"]) == (480, 480)
    sides = [
        sorted((box["label"], *(round(box[side] / factor) for side in ("x", "y", "width", "height"))) for box in boxes)
        for boxes, factor in ((small["boxes"], 1), (large["boxes"], 10))
    ]
    assert sides[0] == sides[1]
    for box in large["boxes"]:
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 480.01 and 0 <= box["y"] <= 480.01


def test_picture_on_its_side_is_answered_upright(service, pictures):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = np.ascontiguousarray(np.rot90(pictures[0], 1)[:, :32])
    upright = service.ask(encode_picture(np.ascontiguousarray(np.rot90(turned, -1))))
    assert service.ask(encode_picture(turned, exif=exif))["boxes"] == upright["boxes"]
    assert (upright["width"], upright["height"]) == (48, 32)


def test_reply_is_as_the_openapi_document_says(service, pictures):
    document = build_openapi_document(False, Limits(), ["squares"])
    schema = document["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator(schema | {"components": document["components"]})
    validator.validate(service.ask(encode_picture(pictures[1])))


@pytest.mark.parametrize(("body", "expected"), [(b"no image", 400), (b"", 400), (b"\x89PNG\r\n\x1a\n", 400)])
def test_wrong_body_is_rejected_in_one_sentence(service, body, expected):
    status, reply = service.send("POST", "/predict", body, content_type="image/png")
    assert status == expected and len(json.loads(reply)["error"].splitlines()) == 1


def test_triton_client_sends_tensors_and_files(service, model, pictures):
    client = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    metadata = client.get_model_metadata("squares")
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["boxes", "scores", "labels", "threshold"]
    tensors = np.ascontiguousarray(pictures[:5].transpose(0, 3, 1, 2))
    files = np.array([encode_picture(pixels) for pixels in pictures[:5]], object)
    results = []
    for name, array, datatype in (("pictures", tensors, "UINT8"), ("encoded", files, "BYTES")):
        infer_input = triton.InferInput(name, list(array.shape), datatype)
        infer_input.set_data_from_numpy(array)
        results.append(client.infer("squares", [infer_input]))
    client.close()
    boxes, other_boxes = (result.as_numpy("boxes") for result in results)
    assert boxes.shape == (5, model.max_boxes, 4)
    scores = results[0].as_numpy("scores")
    inside = scores >= results[0].as_numpy("threshold")[:, None]
    np.testing.assert_allclose(boxes[inside].clip(0), other_boxes[inside].clip(0), atol=8)  # cut at the sides
    assert {label.decode() for label in results[0].as_numpy("labels").flatten()} <= set(model.classes)
    np.testing.assert_allclose(scores, results[1].as_numpy("scores"), atol=1e-5)


def test_pages_show_boxes_and_a_place_to_try_the_model(service):
    status, page = service.send("GET", "/try")
    assert status == 200 and b'["squares"]' in page and b"getUserMedia" in page
    status, page = service.send("GET", "/")
    assert status == 200 and b"squares" in page


@pytest.mark.slow
def test_requests_are_watched_and_kept_with_their_boxes(pictures, tmp_path):
    bundle = load_bundle(publish_squares(tmp_path, drift=True))
    with start_detector_service(bundle.folder, tmp_path) as service:
        observer = service.observer
        observer.credit_seconds = 10.0
        for index, pixels in enumerate(pictures):
            side = (48, 120)[index % 2]
            service.ask(encode_picture(np.asarray(Image.fromarray(pixels).resize((side, side)))))
        asyncio.run(observer.send_report())
        observer.capture_sampler.executor.shutdown()
    (rows,) = [row for key, row in service.monitor.sum_rows().items() if key.model == "squares"]
    layout = load_bundle_profile(bundle).baseline.layout
    assert layout.read_part(rows, "cells").sum() == len(pictures)
    captures = service.store.list_captures()
    assert captures and all(capture.boxes is not None for capture in captures)
    for capture in captures:
        png = service.store.read_png(capture.id)
        assert decode_png(png).shape[0] in (48, 120)  # as it was sent
        (expected,) = bundle.find_boxes([png])
        assert [box.label for box in capture.boxes] == [box.label for box in expected]
        for box, other in zip(capture.boxes, expected, strict=True):
            assert all(abs(getattr(box, name) - getattr(other, name)) < 1 for name in ("x", "y", "width", "height"))
    names = {box.label for capture in captures for box in capture.boxes}
    assert names <= set(bundle.classes) and all(capture.label in bundle.classes for capture in captures)
    assert main(["--bundle", str(bundle.folder), "--data", str(write_pictures(pictures, tmp_path / "pictures"))]) != 1


def write_pictures(pictures, folder):
    """Write pictures into a folder of their own, and return it."""
    folder.mkdir()
    for index, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder
