"""Files for contributors and users say what is there: notice, hooks, templates, examples and Ray's private parts."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from pre_commit.clientlib import load_config

from jobs.cluster import ray_internals

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FOREIGN_MARKS = re.compile(r"copyright|spdx-license|@license|all rights reserved", re.IGNORECASE)
FILES_ABOUT_LICENCES = {"LICENSE", "NOTICE", "CONTRIBUTING.md", "tests/unit/repository/test_contributor_files.py"}
MAX_OWN_LINE = 1000  # characters of a line that somebody wrote by hand


def list_tracked_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.splitlines() if (ROOT / name).is_file()]


def read_notice():
    return (ROOT / "NOTICE").read_text(encoding="utf-8")


def list_foreign_files():
    """Return the files that say that others own them, and JSON, script and style that nobody wrote by hand."""
    foreign = []
    for name in list_tracked_files():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        is_code = Path(name).suffix in {".js", ".css", ".html", ".json", ".py"}
        is_generated = is_code and max(map(len, text.splitlines()), default=0) > MAX_OWN_LINE
        if name not in FILES_ABOUT_LICENCES and (FOREIGN_MARKS.search(text) or is_generated):
            foreign.append(name)
    return foreign


def test_notice_names_every_file_that_others_wrote():
    foreign = list_foreign_files()
    assert "jobs/cluster/kuberay_schema.json" in foreign
    assert [name for name in foreign if name not in read_notice()] == []


def test_notice_names_files_that_exist_and_their_versions():
    paths = re.findall(r"(?:^|\s)((?:jobs|tests|docs|services|dashboards)/[\w./]+\w)", read_notice())
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []
    versions = json.loads((ROOT / "jobs" / "cluster" / "kuberay_schema.json").read_text())["versions"]
    assert all(version in read_notice() for version in versions.values())


def test_notice_names_what_is_written_into_pages():
    embedded = (ROOT / "dashboards" / "page.py").read_text(encoding="utf-8")
    assert ("get_plotlyjs" in embedded) == ("plotly.js" in read_notice())


def test_hooks_call_tools_of_the_environment():
    config = load_config(str(ROOT / ".pre-commit-config.yaml"))
    [repository] = config["repos"]
    assert repository["repo"] == "local"  # a hook from elsewhere would bring a version of its own
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repository["hooks"]}
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert tools == {"ruff", "mypy"} <= {re.match(r"[\w-]+", requirement)[0] for requirement in extra}


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_forms_are_valid(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        assert form["blank_issues_enabled"] is True
        return
    assert form["name"] and form["description"]
    for field in form["body"]:
        assert field["type"] == "textarea" and re.fullmatch(r"[a-z]+", field["id"])
        assert {"label", "description"} <= field["attributes"].keys()


def test_examples_are_listed_with_what_they_show():
    listed = re.findall(
        r"^\| \[([\w.]+)\]\(([\w.]+)\) \| .{20,} \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".ipynb"}}
    assert all(text == link for text, link in listed)
    assert {text for text, _ in listed} == programs


def test_every_example_runs_in_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "examples").glob("*.py"))
    programs = [path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".ipynb"}]
    assert len(programs) > 5
    assert [name for name in programs if f'"{name}"' not in tests] == []


def test_private_parts_of_ray_are_on_the_check_list():
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert set(ray_internals.__all__) <= named
