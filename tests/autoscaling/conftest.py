"""One growing cluster for all tests of it: its start takes longer than each of them."""

import pytest

from tests.autoscaling.local_cluster import start_local_cluster


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    with start_local_cluster(tmp_path_factory.mktemp("local")) as made:
        yield made
