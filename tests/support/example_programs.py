"""Run the programs of examples/ as their docstrings say, outside of a terminal."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from PIL import Image
from torch import Tensor

from jobs.cluster.private_ray import ENVIRONMENT_BIN
from tests.support.ray_cluster import ROOT

EXAMPLES = ROOT / "examples"


def build_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment with the scripts of the project's own first on the path, and without proxies."""
    path = f"{ENVIRONMENT_BIN}:{environment['PATH']}"
    return {**environment, "PATH": path, "no_proxy": "*", "NO_PROXY": "*", "OMP_NUM_THREADS": "1"}


def run_example(name: str, *arguments: object, launcher: tuple[str, ...] = (), status: int = 0) -> str:
    """Run a program with arguments to its end, check its exit status and return what it printed."""
    command = [*(launcher or [sys.executable]), EXAMPLES / name, *map(str, arguments)]
    result = subprocess.run(command, env=build_environment(), capture_output=True, text=True, timeout=240)
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout


def write_png_files(images: Tensor, folder: Path) -> list[Path]:
    """Write grey uint8 images (n, 1, height, width) as PNG files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:03}.png" for index in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        Image.fromarray(image[0].numpy()).save(path)
    return paths
