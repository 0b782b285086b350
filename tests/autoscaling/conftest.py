"""One autoscaling cluster for all tests in this folder: it takes longer to start than any of them to run."""

import pytest

from tests.autoscaling.local_cluster import start_local_cluster


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory):
    with start_local_cluster(tmp_path_factory.mktemp("local")) as cluster:
        yield cluster
