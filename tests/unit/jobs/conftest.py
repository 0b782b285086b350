"""A bundle and a workload that tests of commands read and never change."""

from types import SimpleNamespace

import pytest
import torch

from equipoise.workloads import Split
from tests.support.bundles import publish_run, train_short_run
from tests.support.drift_data import render_shapes


@pytest.fixture(scope="session")
def digits_bundle(tmp_path_factory):
    """Publish a bundle without a drift reference, which most of these tests do not need."""
    folder = tmp_path_factory.mktemp("digits")
    return publish_run(train_short_run(folder / "run", examples=320), folder / "digits")


@pytest.fixture(scope="session")
def shapes():
    """Return the workload that the model learned first, of which only the reference matters."""
    images, labels = render_shapes(400, seed=1)
    return SimpleNamespace(reference=Split(images, torch.from_numpy(labels)))
