"""A store in this process's memory, as good as one behind a network for all but its being away."""

import fsspec
import pytest

from equipoise.storage.object_store import RemotePath


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture
def bucket(memory):
    return RemotePath("memory://bucket")
