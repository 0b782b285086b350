"""Fixtures for the tests of several folders."""

import pytest

from tests.support.bundles import publish_run, train_short_run
from tests.support.chromium import browser, engine
from tests.support.ray_cluster import cluster

__all__ = ["browser", "cluster", "engine"]


@pytest.fixture(scope="session")
def monitored_digits(tmp_path_factory):
    """A bundle of digits with a drift profile, which takes several seconds to build."""
    folder = tmp_path_factory.mktemp("monitored-digits")
    return publish_run(train_short_run(folder / "run", examples=9600), folder / "digits", drift=True)
