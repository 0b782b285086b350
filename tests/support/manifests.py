"""Manifest of a bundle with plausible values, for tests that need no model."""

from dataclasses import asdict

from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.manifest import EngineEntry, EngineResult, ImagePreprocessing, InputSpec, Manifest
from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts


def build_manifest(**changes):
    """Build the manifest of a model of two classes, with these fields changed."""
    fields = {
        "name": "pets",
        "workload": "folder",
        "classes": ["cat", "dog"],
        "input": InputSpec(channels=3, height=32, width=48),
        "preprocessing": ImagePreprocessing(picture="center square", mean=[0.5] * 3, std=[0.25] * 3),
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
