"""The pages in docs/reference are what the code generates, and leave out nothing that a user can meet."""

import ast
import importlib
import inspect
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import equipoise
from docs.generate.__main__ import PAGE_BUILDERS, REFERENCE_FOLDER
from docs.generate.class_tables import collect_classes
from docs.generate.cli import parse_exit_statuses
from docs.generate.environment import list_variables
from docs.generate.file_formats import FILES, JSON_FILES, TEXTS, list_npz_arrays
from docs.generate.markdown import mark_code
from docs.generate.options import load_option_groups
from docs.generate.python_api import PUBLIC_NAMES
from equipoise.config import TrainConfig
from equipoise.drift.features.box_stats import FoundBoxes
from equipoise.drift.reference.false_alarms import FalseAlarmCheck
from equipoise.errors import ERROR_CODES
from equipoise.workloads import load_workload
from jobs.cli.main import COMMAND_MODULES
from jobs.cli.option_parser import list_option_names
from jobs.command_options.class_fields import list_fields
from jobs.command_options.option_groups import find_options_class
from jobs.publishing.kinds.boxes_publication import BoxesPublication
from jobs.publishing.reference_arrays import build_reference_arrays
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS
from jobs.timing.timing_records import ExchangeTiming, StepTiming
from services.app import AppSettings
from services.http.api_operations import OPERATIONS
from services.http.errors import RequestRejected
from services.limits import Limits
from services.pages import PagesSettings
from services.serving.model_versions import ModelSpec
from tests.support.quick_profile import build_quick_profile

ROOT = Path(__file__).parents[2]
PACKAGES = ("equipoise", "jobs", "services", "dashboards")
ARGPARSE_COMMANDS = ("pages", "validate-cluster")
VARIABLE_NAME = re.compile(
    r"(?:EQUIPOISE|RAY|TUNE|AUTOSCALER|ORT|AWS|GOOGLE|AZURE|OMP|MKL|PROMETHEUS|GLOO|NCCL|CUDA|TORCH|MASTER|MLFLOW|WANDB)"
    r"_[A-Za-z0-9_]+|PYTHONPATH"
)
ENVIRONMENT_METHODS = {"get", "setdefault", "pop"}


@cache
def read_page(name):
    return (REFERENCE_FOLDER / name).read_text(encoding="utf-8")


def find_environment_names(tree):
    """Yield each name that a module looks up in os.environ, and each text that looks like a variable of a library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE_NAME.fullmatch(node.value):
            yield node.value
        key = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            is_lookup = ast.unparse(node.func.value) == "os.environ" and node.func.attr in ENVIRONMENT_METHODS
            key = node.args[0] if is_lookup or ast.unparse(node.func) == "os.getenv" else None
        if isinstance(key, ast.Constant):
            yield key.value


@pytest.mark.parametrize("name", PAGE_BUILDERS)
def test_committed_page_is_the_generated_one(name):
    assert read_page(name) == PAGE_BUILDERS[name](), "run make docs-reference"


def test_folder_holds_the_generated_pages_and_no_others():
    assert {path.name for path in REFERENCE_FOLDER.iterdir()} == PAGE_BUILDERS.keys()


@pytest.mark.parametrize("name", PAGE_BUILDERS)
def test_page_has_no_empty_cell_escape_code_or_path_of_a_machine(name):
    page = read_page(name)
    cells = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert all(cell.strip(" |") for row in cells for cell in row)
    assert "\x1b" not in page and str(ROOT) not in page and str(Path.home()) not in page
    assert page.startswith("# ") and page.endswith("\n") and "\n\n\n" not in page


@pytest.mark.parametrize("name", PAGE_BUILDERS)
def test_links_lead_to_headings(name):
    for target, anchor in re.findall(r"\]\(([\w.-]*)#([\w-]+)\)", read_page(name)):
        headings = re.findall(r"^#+ (.*)$", read_page(target or name), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{name} links to {target}#{anchor}"
    for target in re.findall(r"\]\(([\w.-]+\.md)", read_page(name)):
        assert target in PAGE_BUILDERS


@pytest.mark.parametrize("command", [name for name in COMMAND_MODULES if name not in ARGPARSE_COMMANDS])
def test_options_of_a_command_are_those_of_its_help(command):
    groups = load_option_groups(command)
    documented = [
        name for group in groups for option in group.options if not option.is_positional for name in option.names
    ]
    names = [name for name in list_option_names(find_options_class(command)) if name != "--help"]
    assert sorted(documented) == sorted(names)


@pytest.mark.parametrize("command", [*COMMAND_MODULES, "serve"])
def test_page_describes_every_command_and_its_options(command):
    section = read_page("cli.md").partition(f"\n## equipoise {command}\n")[2].partition("\n## ")[0]
    assert f"equipoise {command}" in section
    options = (
        [option for group in load_option_groups(command) for option in group.options] if command != "serve" else []
    )
    assert all(f"| `{option.names[0]}` " in section and option.help for option in options)


@pytest.mark.parametrize("command", COMMAND_MODULES)
def test_docstring_of_a_command_names_its_exit_statuses(command):
    statuses = parse_exit_statuses(command)
    assert {0, 2} <= statuses.keys() <= {0, 1, 2, 3, 4, 143} and all(statuses.values())


@pytest.mark.parametrize("settings", [AppSettings, PagesSettings, ModelSpec])
def test_page_describes_every_service_argument(settings):
    page = read_page("service-arguments.md")
    assert all(f"| `{name}` |" in page for name in settings.model_fields)
    assert all(f"| `{field.name}` |" in page for field in list_fields(Limits))


@pytest.mark.parametrize("endpoint", OPERATIONS)
def test_page_describes_every_endpoint(endpoint):
    page = read_page("http-api.md")
    assert f"\n### {endpoint}\n" in page and OPERATIONS[endpoint].returns in page
    assert all(f"`{media_type}`" in page for media_type in OPERATIONS[endpoint].body)


def test_page_describes_every_status_of_a_rejection():
    page = read_page("http-api.md")
    source = inspect.getsource(inspect.getmodule(RequestRejected))
    statuses = {*re.findall(r"RequestRejected\((\d{3})", source)}
    assert len(statuses) > 8 and all(f"| `{status}` |" in page for status in statuses)


def test_page_describes_every_error_code_once():
    codes = re.findall(
        r"^\| `([a-z-]+)` \| [A-Z]", read_page("exit-codes.md").partition("## Error codes")[2], re.MULTILINE
    )
    assert sorted(codes) == sorted(ERROR_CODES)


def test_every_environment_variable_in_the_sources_is_documented():
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    found = {name for file in files for name in find_environment_names(ast.parse(file.read_text(encoding="utf-8")))}
    variables = list_variables()
    assert {variable.name for variable in variables if variable.in_sources} == found
    assert all(f"| `{variable.name}` |" in read_page("environment.md") for variable in variables)


NO_BOXES = FoundBoxes(np.zeros((2, 3)), np.zeros((2, 3, 4)), np.zeros((2, 3), np.int64), np.zeros((2, 4)))


def test_arrays_of_the_reference_are_those_that_publishing_writes():
    workload = load_workload(TrainConfig(workload="digits"))
    outputs = np.zeros((2, 3)), np.zeros((2, 4)), np.zeros(2, np.int64)
    check = FalseAlarmCheck(asked=1000.0, pictures=1000, alarms=1, held_out=10, resampled_alarms=1, log_spread=0.5)
    profile = replace(build_quick_profile(), verified=check)
    written = build_reference_arrays(workload, outputs).keys() | profile.to_arrays().keys()
    written |= BoxesPublication(load_workload(TrainConfig(workload="shelf"))).build_reference_arrays(NO_BOXES).keys()
    assert list_npz_arrays().keys() == written | {"drift.why not"}


def test_columns_of_tables_are_those_that_a_sweep_writes():
    columns = {field.name for kind in (StepTiming, ExchangeTiming) for field in fields(kind)} - {"repeat"}
    assert all(f"| `{column}` |" in read_page("file-formats.md") for column in (*columns, *FINISHED_TRIAL_COLUMNS))


@pytest.mark.parametrize("kind", [kind for file in JSON_FILES for kind in collect_classes(file.classes)])
def test_every_key_of_a_file_has_a_meaning(kind):
    page = read_page("python-api.md" if kind is TrainConfig else "file-formats.md")
    for field in list_fields(kind):
        assert field.doc, f"{kind.__name__}.{field.name} has no docstring"
        assert f"| `{field.name}` |" in page


def test_every_file_has_a_section():
    assert set(FILES) == TEXTS.keys() >= {file.name for file in JSON_FILES}
    assert all(f"\n## {text.title}\n" in read_page("file-formats.md") for text in TEXTS.values())


def test_whole_names_of_files_are_marked_as_code():
    text = "writes profile.json and trace-worker-0.json.gz to --out"
    assert mark_code(text) == "writes `profile.json` and `trace-worker-0.json.gz` to `--out`"


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_page_describes_every_public_name(name):
    section = read_page("python-api.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    module = section.partition("\nfrom ")[2].partition(f" import {name}\n")[0]
    assert hasattr(importlib.import_module(module), name)
    assert module == ("equipoise" if name in equipoise.__all__ else PUBLIC_NAMES[name])
