"""Fixtures for an object store in memory, which behaves like a remote one except that it is always reachable.

Examples that Hypothesis generates have no deadline: a busy machine may take any time for one.
"""

import fsspec
import hypothesis
import pytest

from equipoise.storage.object_store import RemotePath

hypothesis.settings.register_profile("any time", deadline=None)
hypothesis.settings.load_profile("any time")


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def bucket(memory):
    return RemotePath("memory://bucket")
