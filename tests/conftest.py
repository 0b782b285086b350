"""Fixtures that several folders share."""

import pytest

from tests.support.bundles import publish_run, train_short_run
from tests.support.chromium import browser, engine
from tests.support.ray_cluster import cluster

__all__ = ["browser", "cluster", "engine"]


@pytest.fixture(scope="session")
def watched_digits(tmp_path_factory):
    """A bundle with what drift is told by, which takes a while to find out."""
    place = tmp_path_factory.mktemp("watched-digits")
    return publish_run(train_short_run(place / "run", examples=9600), place / "digits", drift=True)
