"""Fixtures for an object store in memory, which behaves like a remote one except that it is always reachable."""

import fsspec
import pytest

from equipoise.storage.object_store import RemotePath


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def bucket(memory):
    return RemotePath("memory://bucket")
