"""Detectors of torchvision learn by their own losses in the loop that all workloads share."""

import json

import pytest
import torch
from safetensors.torch import save_file

from equipoise.config import TrainConfig
from equipoise.training.finetune import (
    PretrainedWeights,
    build_lr_scales,
    initialize_from_pretrained,
    load_pretrained,
)
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.training.loop import Training
from equipoise.training.torch_state import collect_weights
from equipoise.workloads.detection.detectors import find_detector
from equipoise.workloads.detection.torchvision_detectors import (
    import_detection_models,
    list_torchvision_detectors,
    rename_detector_weights,
    unstack_boxes,
)
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


def save_run(folder, model, classes):
    folder.mkdir()
    save_file(collect_weights(model), folder / "model.safetensors", {"classes": json.dumps(classes)})
    return str(folder)


def build_again(name, classes, **options):
    """Return the model of a new run that starts from other weights, and the classes whose classifier it took over."""
    detector = find_detector(name, len(classes), 96)
    workload = small_shelf(model=detector.build, loss=detector.loss, classes=classes, augment=None, target=None)
    initial = build_initial_model(TrainConfig(workload="x:y", batch_size=8, seed=5, **options), workload)
    scales = build_lr_scales(initial.model, TrainConfig(workload="x:y", **options), len(classes))
    return initial, scales


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_fpn"])
def test_detector_of_torchvision_starts_from_a_run(tmp_path, name):
    classes = [*small_shelf().classes]
    before = find_detector(name, len(classes), 96).build()
    run = save_run(tmp_path / "run", before, classes)
    initial, scales = build_again(name, classes, init_from=run)
    assert [*initial.reused_classes] == classes
    weights = before.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in initial.model.state_dict().items())
    in_classifier = {key for key, scale in scales.items() if scale == 1}
    assert in_classifier and all(key.startswith(f"{before.classifier_name}.") for key in in_classifier)
    initial, _ = build_again(name, [*classes[1:], "another", "one more"], init_from=run)
    assert initial.reused_classes == ()
    backbone = [key for key in weights if key.startswith("detector.backbone.")]
    assert all(torch.equal(initial.model.state_dict()[key], weights[key]) for key in backbone)


def test_published_weights_of_a_detector_have_its_names_here(tmp_path):
    name, classes = "fasterrcnn_mobilenet_v3_large_fpn", ["a", "b", "c"]
    published = import_detection_models().__dict__[name](weights=None, weights_backbone=None, num_classes=91)
    frozen = {key: value for key, value in published.state_dict().items() if "num_batches" not in key}  # as they are
    model = find_detector(name, len(classes), 96).build()
    weights = PretrainedWeights("torchvision's", rename_detector_weights(name, frozen), ["__background__", *"abcd"])
    assert initialize_from_pretrained(model, weights, classes, reuse_head=True) == []
    backbone = "backbone.body.0.0.weight"
    assert torch.equal(model.detector.state_dict()[backbone], frozen[backbone])
    assert rename_detector_weights("resnet18", frozen) is frozen
    with raises_code("pretrained-unavailable", "ssdlite320_mobilenet_v3_large"):
        load_pretrained(TrainConfig(workload="shelf", model="ssd300_vgg16", init_from="torchvision"))


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
