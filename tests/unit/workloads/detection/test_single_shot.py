"""Answers of an SSD by tensors of fixed shapes: those of torchvision, in training, in a bundle and in a service."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.graph import export_model
from equipoise.bundle.kinds.inference_module import DetectionModule
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads.detection.detectors import find_detector
from equipoise.workloads.detection.torchvision_detectors import stack_answers
from jobs.publishing.export import export_programs
from tests.support.boxed_shelves import small_shelf
from tests.support.bundles import publish_run, write_run_folder
from tests.support.detector_service import encode_picture, start_detector_service
from tests.support.errors import raises_code

NAME = "ssdlite320_mobilenet_v3_large"


def build_lively_detector(name=NAME):
    """Build a detector whose scores differ, as those of a new one do not: its layers are normalized to what it sees."""
    torch.manual_seed(0)
    model, pictures = find_detector(name, 10, 96).build(), torch.rand(3, 3, 96, 96) * 2 - 1
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        resized = F.interpolate(pictures, size=model.detector.transform.fixed_size[::-1], mode="bilinear")
        model.detector.head([*model.train().detector.backbone(resized).values()])
    return model.eval(), pictures


def test_answers_are_those_of_torchvision():
    model, pictures = build_lively_detector()
    with torch.inference_mode():
        answers = model(pictures)["detections"]
        expected = stack_answers(model.detector(list(pictures)), pictures)
    assert answers.shape == (3, 100, 6)
    torch.testing.assert_close(answers[:, :60], expected[:, :60], atol=1e-3, rtol=1e-4)
    assert (answers[:, :60, 4].diff(dim=1) <= 0).all() and answers[:, :60, 4].unique().numel() > 100


def test_places_without_an_answer_have_no_class():
    model, pictures = build_lively_detector()
    model.detector.score_thresh = 1.0
    with torch.inference_mode():
        answers = model(pictures)["detections"]
    assert (answers == torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])).all()


def test_default_boxes_are_no_part_of_the_weights():
    model, _ = build_lively_detector()
    assert model.default_boxes.shape == (3234, 4) and "default_boxes" not in model.state_dict()


def test_detector_in_two_stages_is_refused_by_the_names_of_its_operators(tmp_path):
    model = find_detector("fasterrcnn_mobilenet_v3_large_fpn", 10, 96).build()
    module = DetectionModule(model, None, [0.5] * 3, [0.5] * 3)
    with raises_code("export-failed", "torchvision::nms, torchvision::roi_align are not on the list"):
        export_programs(module, torch.zeros(2, 3, 96, 96, dtype=torch.uint8), tmp_path)
    assert not any(tmp_path.iterdir())
    with raises_code("export-failed", "the operator torchvision::nms is not on the list"):
        export_model(find_detector("retinanet_resnet50_fpn", 10, 96).build(), torch.zeros(2, 3, 96, 96))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Bundle of a detector that took a few steps on shelves."""
    config = TrainConfig(
        workload=f"{__name__}:shelf_for_ssd", optimizer="adamw", lr=1e-3, batch_size=8, max_examples=48, eval_every=48
    )
    training = Training(config)
    for _ in training.laps():
        pass
    folder = tmp_path_factory.mktemp("ssd")
    return load_bundle(publish_run(write_run_folder(training, folder / "run"), folder / "bundle"))


def shelf_for_ssd(config):
    """Build shelves with a detector of torchvision."""
    detector = find_detector(NAME, 10, 48)
    return small_shelf(
        model=detector.build, loss=detector.loss, mean=detector.mean, std=detector.std, augment=None, target=None
    )


@pytest.mark.slow
@pytest.mark.thorough
def test_every_engine_of_the_bundle_agrees(bundle):
    results = {result.engine: result for result in bundle.manifest.engine.table}
    assert {name for name, result in results.items() if result.agrees} == {
        "eager",
        "eager without oneDNN",
        "onnxruntime",
    }, results
    pixels = shelf_for_ssd(None).test.inputs.permute(0, 2, 3, 1).numpy()
    sources = [encode_picture(picture) for picture in pixels]
    found = {name: load_bundle(bundle.folder, name).find_boxes(sources, 0.11) for name in ("eager", "onnxruntime")}
    for boxes, others in zip(*found.values(), strict=True):
        for box, other in zip(boxes, others, strict=True):
            assert box.label == other.label and box.score == pytest.approx(other.score, abs=1e-4)
            assert max(abs(getattr(box, side) - getattr(other, side)) for side in ("x", "y", "width", "height")) < 1


@pytest.mark.slow
@pytest.mark.thorough
def test_bundle_is_served(bundle, tmp_path):
    picture = shelf_for_ssd(None).test.inputs[0].permute(1, 2, 0).numpy()
    (expected,) = bundle.find_boxes([encode_picture(picture)])
    with start_detector_service(bundle.folder, tmp_path) as service:
        reply = service.ask(encode_picture(picture))
        status, models = service.send("GET", "/models")
    assert [box["label"] for box in reply["boxes"]] == [box.label for box in expected]
    assert status == 200 and json.loads(models)["models"]
