"""The contact sheet: images of a workload beside their variations."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from jobs.contact_sheet import main


@pytest.fixture
def render_sheet(monkeypatch):
    def run_main(*arguments):
        monkeypatch.setattr("sys.argv", ["contact_sheet", *map(str, arguments)])
        return main()

    return run_main


def test_each_row_shows_an_image_and_its_variations(render_sheet, tmp_path):
    sheet = tmp_path / "sheet.png"
    assert render_sheet("--workload", "digits", "--rows", 2, "--columns", 3, "--augment.shift", 2, "--out", sheet) == 0
    pixels = np.asarray(Image.open(sheet))
    height, width = (size // count for size, count in zip(pixels.shape, (2, 3), strict=False))
    first, second = pixels[:height, :width], pixels[:height, width : 2 * width]
    assert min(first.shape[:2]) >= 16 and not np.array_equal(first, second)


def test_scene_setting_varies_over_the_columns(render_sheet, tmp_path):
    sheet = tmp_path / "sheet.png"
    scene = ("--scene-setting", "exposure", "--image-size", 32)
    assert render_sheet("--workload", "vending", *scene, "--rows", 1, "--columns", 3, "--out", sheet) == 0
    pixels = np.asarray(Image.open(sheet)).astype(float)
    unchanged, darkest, darker = (column.mean() for column in np.array_split(pixels, 3, axis=1))
    assert darkest < darker < unchanged


def test_user_sees_which_images_cannot_be_read(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (16, 16), (9 * number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "bee" / "empty.png").touch()
    command = [sys.executable, "-m", "jobs.contact_sheet", "--workload", "folder", "--data", str(tmp_path / "photos")]
    sizes = ("--image-size", "16", "--rows", "2", "--columns", "2", "--out", str(tmp_path / "sheet.png"))
    result = subprocess.run([*command, *sizes], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    unreadable = tmp_path / "photos" / "bee" / "empty.png"
    assert result.stderr == f"left out 1 of 17 images that cannot be read: {unreadable}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "digits", "--rows", 0), "--rows must be from 1 to 200, got 0"),
        (("--workload", "digits", "--scene-setting", "blur"), "it is not rendered"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(render_sheet, tmp_path, capsys, arguments, message):
    assert render_sheet(*arguments, "--out", tmp_path / "sheet.png") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_only_a_file_is_replaced(render_sheet, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sheet.png").touch()
    (tmp_path / "link").symlink_to("sheet.png")
    size = ("--workload", "digits", "--rows", 1, "--columns", 1)
    assert render_sheet(*size, "--out", tmp_path / "pipe") == 2
    assert capsys.readouterr().err.endswith("[path-kind]\n") and (tmp_path / "pipe").is_fifo()
    assert render_sheet(*size, "--out", tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
