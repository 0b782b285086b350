"""Fixtures for the tests of the labelling page."""

import pytest

from equipoise.bundle.bundle import load_bundle
from tests.support.square_detector import publish_squares


@pytest.fixture(scope="session")
def squares_bundle(tmp_path_factory):
    """Published detector of squares."""
    return load_bundle(publish_squares(tmp_path_factory.mktemp("squares")))
