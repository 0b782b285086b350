"""Every target of the Makefile says what it does, `make` alone lists them, and what calls them names existing ones."""

import re
import shutil
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
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:make|for suite in) ([^;\n]+)", script, re.MULTILINE)
    called = {word for line in lines for word in line.split() if word.startswith("test")}
    assert called == {target for target in TARGETS if target.startswith("test")} - {
        "test-cluster",
        "test-frameworks",
        "test-thorough",
    }


@pytest.mark.parametrize("failing", ["", "test-docs"])
def test_ci_fails_with_a_failed_suite_after_it_has_run_all_others(failing, tmp_path):
    """A stand-in Makefile notes which suites ran; one of them may fail."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text(f"%:\n\t@echo $@ >> ran; test $@ != '{failing}'\n")
    result = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, text=True)
    ran = (tmp_path / "ran").read_text().splitlines()
    assert (result.returncode != 0) == bool(failing), result.stderr
    assert {"lint", "test", "test-ray", "test-docs", "test-examples"} <= set(ran) and len(ran) == len(set(ran))
    assert ("failed: test-docs" in result.stdout) == bool(failing)
