"""The contact sheet: images of a workload beside their variations."""

import numpy as np
import pytest
from PIL import Image

from jobs.contact_sheet import main


@pytest.fixture
def run(monkeypatch):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["contact_sheet", *map(str, arguments)])
        return main()

    return run


def test_each_row_is_an_image_and_its_variations(run, tmp_path):
    sheet = tmp_path / "sheet.png"
    assert run("--workload", "digits", "--rows", 2, "--columns", 3, "--augment.shift", 2, "--out", sheet) == 0
    pixels = np.asarray(Image.open(sheet))
    height, width = (size // count for size, count in zip(pixels.shape, (2, 3), strict=False))
    first, second = pixels[:height, :width], pixels[:height, width : 2 * width]
    assert min(first.shape[:2]) >= 16 and not np.array_equal(first, second)


def test_a_scene_setting_is_varied_from_column_to_column(run, tmp_path):
    sheet = tmp_path / "sheet.png"
    scene = ("--scene-setting", "exposure", "--image-size", 32)
    assert run("--workload", "vending", *scene, "--rows", 1, "--columns", 3, "--out", sheet) == 0
    pixels = np.asarray(Image.open(sheet)).astype(float)
    usual, darkest, darker = (part.mean() for part in np.array_split(pixels, 3, axis=1))
    assert darkest < darker < usual


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "digits", "--rows", 0), "--rows must be from 1 to 200, got 0"),
        (("--workload", "digits", "--scene-setting", "blur"), "it is not rendered"),
    ],
)
def test_values_out_of_range_are_refused(run, tmp_path, capsys, arguments, words):
    assert run(*arguments, "--out", tmp_path / "sheet.png") == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
