"""Detectors of torchvision learn by their own losses in the loop that all workloads share."""

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads.detection.detectors import find_detector
from equipoise.workloads.detection.torchvision_detectors import list_torchvision_detectors, unstack_boxes
from tests.support.boxed_shelves import small_shelf
from tests.support.errors import raises_code


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["ssdlite320_mobilenet_v3_large", pytest.param("fasterrcnn_mobilenet_v3_large_fpn", marks=pytest.mark.thorough)],
)
def test_detector_of_torchvision_takes_steps_that_lower_its_losses(name):
    detector = find_detector(name, 10, 48)
    workload = small_shelf(
        model=detector.build, loss=detector.loss, mean=detector.mean, std=detector.std, augment=None, target=None
    )
    options = {"optimizer": "adamw", "lr": 1e-3, "batch_size": 8, "max_examples": 48, "eval_every": 48}
    training = Training(TrainConfig(workload="x:y", warmup=0.0, **options), workload)
    model, pictures = training.model, workload.input_transform(torch.device("cpu"), torch.float32)
    inputs, targets = workload.train.read_examples(range(8))
    torch.manual_seed(0)
    before = workload.loss(model.train()(pictures(inputs)), targets).item()
    laps = list(training.laps())
    assert training.status == "max_examples", training.reason
    assert 0 <= laps[-1].metric <= 1
    assert workload.loss(model.train()(pictures(inputs)), targets).item() < 0.9 * before
    answers = model.eval()(pictures(inputs))["detections"]
    assert answers.shape == (8, 100, 6) and answers.isfinite().all()


def test_boxes_for_torchvision_are_corners_with_labels_from_one_and_no_crowds():
    boxes = torch.tensor([[2.0, 1, 2, 3, 4, 0], [1, 0, 0, 9, 9, 1], [-1, 0, 0, 1, 1, 0]])
    unstacked = unstack_boxes(boxes)
    assert unstacked["boxes"].tolist() == [[1, 2, 4, 6]] and unstacked["labels"].tolist() == [3]


def test_unknown_and_impossible_detectors_are_refused():
    assert "ssdlite320_mobilenet_v3_large" in list_torchvision_detectors()
    with raises_code("model-unknown", "did you mean ssdlite320_mobilenet_v3_large"):
        find_detector("ssdlite_mobilenet_v3_large", 3, 96)
    with raises_code("model-unknown", "resnet18"):
        find_detector("resnet18", 3, 96)
    with raises_code("model-invalid", "center:1x60"):
        find_detector("center:1x60", 3, 96)
    parameters = find_detector("center:2x32", 3, 96).build().parameters()
    assert sum(weights.numel() for weights in parameters) < 60_000
