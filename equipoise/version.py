"""Version of the project, which is written in pyproject.toml and nowhere else."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT_NAME = "equipoise"


def find_version() -> str:
    """Return the version of the installed package, or that of the checkout where it runs without being installed.

    A job submitted with `--working-dir` runs the uploaded files on nodes that may not have the package.
    """
    try:
        return version(PROJECT_NAME)
    except PackageNotFoundError:
        project_file = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]["version"])
