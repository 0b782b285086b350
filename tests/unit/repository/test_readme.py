"""The README is short, and the options, make targets and files that it and the documentation name exist."""

import re
import sys
from pathlib import Path

import pytest

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from jobs.adapt import AdaptOptions
from jobs.captures import CapturesOptions
from jobs.check import CheckOptions
from jobs.compare_devices import ComparisonOptions
from jobs.contact_sheet import ContactSheetOptions
from jobs.demo.__main__ import DemoOptions
from jobs.export_page import ExportPageOptions
from jobs.label import LabelOptions
from jobs.links import LinksOptions
from jobs.plan import PlanOptions
from jobs.profile import ProfileOptions
from jobs.publish import PublishOptions
from jobs.ray_tune.sweep_options import SweepOptions
from jobs.records import RecordsOptions
from jobs.site_ray.down import DownOptions
from jobs.site_ray.up import UpOptions
from jobs.train import TrainOptions
from tests.support.doc_fences import read_fences
from tests.support.doc_pages import DOCS, HISTORY, README, list_pages
from tests.support.ray_cluster import ROOT

OPTION_CLASSES = (
    TrainOptions,
    PlanOptions,
    SweepOptions,
    PublishOptions,
    ContactSheetOptions,
    CheckOptions,
    CapturesOptions,
    AdaptOptions,
    DemoOptions,
    RecordsOptions,
    LabelOptions,
    ExportPageOptions,
    LinksOptions,
    ProfileOptions,
    ComparisonOptions,
    UpOptions,
    DownOptions,
)
OTHER_OPTIONS = {  # of Ray, pip, curl and other tools
    *("--working-dir", "--submission-id", "--no-wait", "--runtime-env-json", "--metadata-json", "--head", "--generate"),
    *("--bind", "--directory"),  # of Python's http.server
    *("--help", "--constraint", "--editable", "--silent", "--form"),
    "--try",  # of equipoise profile: no field can have the name of a keyword
    *("--standalone", "--nproc-per-node", "--bs"),
}
MAX_LINES, MAX_COLUMNS = 200, 100
WRITTEN_PAGES = [page for page in list_pages() if page.parent not in HISTORY and page.parent.name != "reference"]
CODE_FOLDERS = ("equipoise", "jobs", "services", "dashboards", "tests", "benchmarks", "docs", "examples")


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [README, DOCS / "guides" / "workloads.md"], ids=name_page)
def test_workload_reaches_its_target(page, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(read_fences(page)["workload"].text)
    monkeypatch.syspath_prepend(tmp_path)
    training = Training(TrainConfig(workload="mine:stripes", batch_size=16))
    assert list(training.laps())
    assert training.status == "reached_target"
    sys.modules.pop("mine")


def test_readme_fits_on_a_few_screens():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=name_page)
def test_options_exist(page):
    names = {name.replace("_", "-") for options in OPTION_CLASSES for name in options.__dataclass_fields__}
    project_options = {f"--{name}" for name in names} | {f"--no-{name}" for name in names}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
    assert named - project_options - OTHER_OPTIONS == set()


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=name_page)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= set(targets)


def test_readme_names_the_main_make_targets():
    assert {"make demo", "make test", "make docs", "make setup"} <= set(re.findall(r"make [a-z]+", README.read_text()))


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=name_page)
def test_files_of_the_project_exist(page):
    """Check names in code such as `equipoise/config.py`; a folder of results is not one of the project's folders."""
    words = re.findall(r"`([\w./-]+)`", page.read_text(encoding="utf-8"))
    named = [word for word in words if word.split("/")[0] in CODE_FOLDERS and "/" in word]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=name_page)
def test_modules_that_pages_run_exist(page):
    modules = re.findall(r"python -m ((?:jobs|benchmarks|dashboards)[\w.]*)", page.read_text(encoding="utf-8"))
    paths = [ROOT / module.replace(".", "/") for module in modules if not module.endswith("jobs.NAME")]
    assert [path for path in paths if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())] == []
