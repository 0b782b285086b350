"""A folder of images that is larger than the memory of a process trains in it, to the same losses as in memory."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.support.ray_cluster import ROOT

SIDE, COUNT = 256, 1600  # 315 MB of pixels
FREE_BYTES = 200 << 20


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory):
    """Folder with 1,600 images of two classes; the last one is cut off."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    for index in range(COUNT):
        path = folder / ("dark", "bright")[index % 2] / f"{index:04}.bmp"
        path.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, (128, 256)[index % 2], (SIDE // 4, SIDE // 4, 3), np.uint8)
        Image.fromarray(pixels.repeat(4, 0).repeat(4, 1)).save(path)
    path.write_bytes(path.read_bytes()[:-50_000])
    return folder


@pytest.mark.slow
def test_folder_larger_than_the_memory_limit_trains_as_in_memory(large_folder):
    command = [sys.executable, "-m", "tests.support.limited_memory", large_folder, str(FREE_BYTES)]
    environment = os.environ | {"MALLOC_ARENA_MAX": "2"}  # else each thread may hold on to memory of its own
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    limited, free = (json.loads(line) for line in result.stdout.splitlines())
    data_bytes = sum(path.stat().st_size for path in large_folder.rglob("*.bmp"))
    assert free["in_memory"] and free["peak_bytes"] > data_bytes > 1.4 * FREE_BYTES
    assert not limited["in_memory"] and limited["peak_bytes"] < FREE_BYTES
    assert limited["examples"] == free["examples"] and limited["results"] == free["results"]
    assert "left out 1 of 1600" in result.stderr
