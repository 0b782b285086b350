"""A bundle that tests read and never change."""

import pytest

from tests.support import bundles


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Folder of a short training run on digits, as jobs.train writes it."""
    return bundles.train_short_run(tmp_path_factory.mktemp("runs") / "x")


@pytest.fixture(scope="session")
def bundle_folder(run_folder, tmp_path_factory):
    return bundles.publish_run(run_folder, tmp_path_factory.mktemp("bundles") / "digits")
