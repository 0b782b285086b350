"""Manifest of a bundle with plausible values, for tests that need no model."""

from dataclasses import asdict

from equipoise.bundle.engine_results import EngineEntry, EngineResult
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.image_input import ImageInput, ImagePreprocessing
from equipoise.bundle.manifest import Manifest
from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts

IMAGE_INPUT = ImageInput(
    channels=3,
    height=32,
    width=48,
    preprocessing=ImagePreprocessing(picture="center square", mean=[0.5] * 3, std=[0.25] * 3),
)


def build_manifest(**changes):
    """Build the manifest of a model of two classes, with these fields changed."""
    fields = {
        "name": "pets",
        "workload": "folder",
        "kind": "image",
        "classes": ["cat", "dog"],
        "image": IMAGE_INPUT,
        "inputs": IMAGE_INPUT.list_inputs(),
        "outputs": (
            TensorSpec(name="logits", dtype="float32", shape=(-1, len(changes.get("classes", "ab")))),
            TensorSpec(name="features", dtype="float32", shape=(-1, 5)),
        ),
        "examples": {"train": 80, "test": 20},
        "metrics": Evaluation(0.9, {"cat": 1.0, "dog": 0.8}, 0.05, 0.02, 1.25),
        "config": asdict(TrainConfig(workload="folder", lr=0.1)),
        "parameters": 1234,
        "target": 0.9,
        "published": "2026-11-23T15:31:11+00:00",
        "status": "reached_target",
        "seen": 640,
        "machine": HardwareFacts(processor="EPYC", cores=2),
        "versions": {"equipoise": "0.1.0"},
        "engine": EngineEntry(
            name="eager", why="alone", table=[EngineResult("eager", {1: 0.1, 8: 0.3, 16: 0.4}, 0.0, True)]
        ),
    }
    return Manifest(**fields | changes)
