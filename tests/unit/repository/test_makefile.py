"""Every target of the Makefile says what it does, `make` alone lists them, and what calls them names existing ones."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE)
CALLERS = [".ci/run", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md", "docs/releases.md"]


@pytest.mark.parametrize("target", TARGETS)
def test_target_has_a_comment(target):
    assert re.search(rf"^{target}:.* ## \S.{{10,}}$", MAKEFILE, re.MULTILINE)


def test_every_target_is_declared_phony():
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)).split()
    assert sorted(phony) == sorted(TARGETS)


@pytest.mark.parametrize("arguments", [[], ["help"]], ids=["alone", "help"])
def test_make_lists_every_target(arguments):
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == TARGETS
    assert all(len(line.split()) > 3 for line in result.stdout.splitlines())


@pytest.mark.parametrize("caller", CALLERS)
def test_targets_that_other_files_name_exist(caller):
    text = (ROOT / caller).read_text(encoding="utf-8")
    calls = re.findall(r"(?:^|`)make ((?:[a-z.][\w/.-]*[ `&]?)+)", text, re.MULTILINE)
    names = {name for call in calls for name in re.split(r"[ `&]+", call) if name and not name.startswith(".")}
    assert names - set(TARGETS) == set()


def test_ci_runs_the_project_own_script():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in commands
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert workflow["permissions"] == {"contents": "read"}


def test_ci_runs_every_test_but_those_of_clusters_and_of_other_frameworks_and_further_cases():
    lines = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    called = {word for line in lines for word in line.split() if word.startswith("test")}
    assert called == {target for target in TARGETS if target.startswith("test")} - {
        "test-cluster",
        "test-frameworks",
        "test-thorough",
    }
