import pytest

from equipoise.captures.store import CaptureStore
from tests.support.captures import build_request
from tests.support.small_disk import mount_small_disk


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def store_with_clock(tmp_path, clock):
    return CaptureStore(str(tmp_path / "kept"), clock=lambda: clock[0])


@pytest.fixture
def three_captures(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    for _ in range(3):
        store.offer(build_request())
    return store, [capture.id for capture in store.list_captures()]


@pytest.fixture
def small_disk(tmp_path):
    with mount_small_disk(tmp_path / "disk", "64k") as folder:
        yield folder
