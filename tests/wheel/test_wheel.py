"""The wheel holds all that the commands need: it is built, installed elsewhere, and used outside of the checkout.

The environment that it is installed into is new, but not empty: a .pth file lends it the packages that the project
depends on from the environment that runs the tests, since installing PyTorch and Ray anew takes minutes and 6.5 GB. So
two things differ from a real installation: pip does not resolve the dependencies (a test compares them with the
versions that are there), and the scripts of other packages, such as Ray's `serve`, are missing from its bin folder.
The editable installation of the project is not lent, because .pth files and import hooks of that folder are not read.
"""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.ray_cluster import ROOT

PACKAGES = ("equipoise", "jobs", "services", "dashboards")
USER_EDITED_SUFFIXES = {".yaml", ".dockerignore"}
"""files below a package that users copy and edit: they belong to the checkout alone"""


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and a folder outside of the checkout to run its commands in."""

    python: Path
    folder: Path
    ray_folder: str

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        environment = own | {"RAY_TMPDIR": self.ray_folder, "OMP_NUM_THREADS": "1"}
        program, *arguments = command
        return subprocess.run(
            [self.python.with_name(str(program)), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )


def list_tracked_files(*folders: str) -> list[Path]:
    """Return the paths of the repository's files, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in output.splitlines() if (ROOT / line).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy of the repository's files, so that nothing left over from a build is in it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for path in list_tracked_files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    [path] = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installation(wheel, tmp_path_factory) -> Iterator[Installation]:
    """Install the wheel into a new environment that borrows the other packages of this one."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    [packages] = (environment / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    with tempfile.TemporaryDirectory(prefix="eq-", ignore_cleanup_errors=True) as ray_folder:
        yield Installation(python, tmp_path_factory.mktemp("elsewhere"), ray_folder)


def test_wheel_holds_every_file_of_the_packages_but_those_that_users_edit(wheel):
    expected = {
        path.as_posix()
        for path in list_tracked_files(*PACKAGES)
        if path.suffix not in USER_EDITED_SUFFIXES and path.name != "Dockerfile"
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"equipoise/py.typed", "dashboards/templates/page.js", "jobs/cluster/kuberay_schema.json"} <= expected
    licenses = {Path(name).name for name in names if "/licenses/" in name}
    assert licenses == {"LICENSE", "NOTICE"}


def test_installed_files_are_those_of_the_wheel(installation):
    script = "import equipoise, jobs, services, dashboards as d; print(equipoise.__file__, jobs.__file__, d.__file__)"
    result = installation.run("python", "-c", script)
    paths = result.stdout.split()
    assert len(paths) == 3, result.stderr
    assert all(Path(path).is_relative_to(installation.python.parents[1]) for path in paths), paths


def test_dependencies_that_the_wheel_names_are_satisfied_by_the_versions_tested(wheel):
    [metadata] = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    requirements = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)]
    always = [requirement for requirement in requirements if requirement.marker is None]
    assert {"ray", "torch"} <= {requirement.name for requirement in always}
    assert [str(each) for each in always if not each.specifier.contains(version(each.name))] == []


def test_command_prints_its_version_and_help(installation, wheel):
    name, wheel_version = wheel.name.split("-")[:2]
    assert installation.run("equipoise", "--version").stdout == f"{name} {wheel_version}\n"
    assert "train " in installation.run("equipoise", "--help").stdout


def test_training_from_the_wheel_writes_a_model_and_its_page(installation):
    options = ("--workload", "digits", "--max-examples", "4000", "--out", "runs/x")
    result = installation.run("equipoise", "train", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    run = installation.folder / "runs" / "x"
    assert json.loads((run / "record.json").read_text())["status"] in ("reached_target", "max_examples")
    assert (run / "model.safetensors").exists()
    assert (run / "run.html").stat().st_size > 10_000  # template, style, script and plotly.js


def test_plan_from_the_wheel_writes_its_pages(installation):
    tables = ROOT / "tests" / "data" / "digits"
    options = ("--system", tables / "system.csv", "--statistical", tables / "statistical.csv", "--out", "runs/plan")
    result = installation.run("equipoise", "plan", *options)
    assert result.returncode == 0, result.stderr
    assert (installation.folder / "runs" / "plan" / "plan.json").exists()
    assert len([*installation.folder.glob("runs/plan/*.html")]) > 0


def test_manifests_are_validated_by_the_schema_in_the_wheel(installation):
    manifest = installation.folder / "raycluster.yaml"
    shutil.copyfile(ROOT / "services" / "kuberay" / "raycluster.yaml", manifest)
    result = installation.run("equipoise", "validate-cluster", manifest)
    assert result.returncode == 0, result.stdout + result.stderr
    contents = yaml.safe_load(manifest.read_text())
    contents["spec"]["headGroupSpeck"] = contents["spec"].pop("headGroupSpec")
    manifest.write_text(yaml.safe_dump(contents))
    result = installation.run("equipoise", "validate-cluster", manifest)
    assert result.returncode == 2 and "headGroupSpeck" in result.stdout + result.stderr


def test_import_strings_of_ray_serve_resolve(installation):
    script = "from services import app, pages; print(callable(app.build), callable(pages.build))"
    result = installation.run("python", "-c", script)
    assert result.stdout == "True True\n", result.stderr
