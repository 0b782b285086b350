"""Wrongly classified test images beside the record of a run."""

import pytest

from equipoise.runs.misclassified import (
    MISCLASSIFIED_FILE,
    MisclassifiedImage,
    read_misclassified,
    write_misclassified,
)
from equipoise.storage.atomic import read_json, write_json
from tests.support.errors import raises_code

IMAGES = [MisclassifiedImage(index=index, label="cup", predicted="box", png=b"\x89PNG") for index in (0, 7)]


def test_images_survive_their_file(tmp_path):
    assert read_misclassified(tmp_path) == []
    write_misclassified(tmp_path, IMAGES)
    assert read_misclassified(tmp_path) == IMAGES
    write_misclassified(tmp_path, [])
    assert read_misclassified(tmp_path) == []


@pytest.mark.parametrize("changes", [{"index": -1}, {"index": 0.5}, {"label": None}, {"png": "?"}])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, changes):
    write_misclassified(tmp_path, IMAGES)
    path = tmp_path / MISCLASSIFIED_FILE
    write_json(path, [read_json(path)[0] | changes])
    with raises_code("run-damaged", path, "remove it"):
        read_misclassified(tmp_path)
