from importlib.util import find_spec

import pytest

from jobs.ray_train.trackers import build_tracker_callbacks
from tests.support.errors import raises_code


def test_no_tracker_gives_no_callbacks(tmp_path):
    assert build_tracker_callbacks(None, tmp_path) == []


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_missing_tracker_package_is_named(name, tmp_path):
    if find_spec(name):
        pytest.skip(f"{name} is installed here")
    with raises_code("package-missing", f"pip install {name}"):
        build_tracker_callbacks(name, tmp_path)
