"""A small model with its optimizer, and observers of it that are closed after the test."""

import pytest
import torch

import equipoise
from tests.support.observed_loops import BATCH, build_small_model


@pytest.fixture
def model():
    return build_small_model()


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)


@pytest.fixture
def observe(model, optimizer, tmp_path):
    """Start an observer of the model that is closed after the test."""
    observers = []

    def start(**options):
        observer = equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", **options)
        observers.append(observer)
        return observer

    yield start
    for observer in observers:
        observer.close()
