"""Fixtures for the tests of several folders."""

import math
import os
import signal
import time

import pytest

from tests.support.bundles import publish_run, train_short_run
from tests.support.chromium import browser, engine
from tests.support.ray_cluster import cluster
from tests.support.shared_folders import make_once

__all__ = ["browser", "cluster", "engine"]

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script; processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item):
    """Leave out slow tests after a time since the epoch, so that a slow machine still reports what it could run."""
    last_start = float(os.environ.get("LAST_SLOW_TEST_START", math.inf))
    if item.get_closest_marker("slow") and time.time() > last_start:
        pytest.skip(f"left out, for lack of time: {item.nodeid}")


@pytest.fixture(scope="session")
def monitored_digits(tmp_path_factory):
    """A bundle of digits with a drift profile, which takes several seconds to build."""

    def publish(folder):
        publish_run(train_short_run(folder / "run", examples=9600), folder / "digits", drift=True)

    return make_once(tmp_path_factory, "monitored-digits", publish) / "digits"
