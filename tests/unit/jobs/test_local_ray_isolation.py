"""Commands keep a Ray of their own to this machine and to themselves, from the moment at which Ray is imported."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import LOOPBACK_ENV

ROOT = Path(__file__).parents[3]
SCRIPT = str(Path(sys.executable).with_name("equipoise"))
REPORT_ENVIRONMENT = """
import json, os
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("RAY_")}), flush=True)
os._exit(0)
"""
"""stands in for Ray, to see the environment that Ray would be imported with"""
USAGE_OFF = {"RAY_USAGE_STATS_ENABLED": "0"}
RAY_MODULES = ("jobs.train", "jobs.sweep", "jobs.adapt", "jobs.cluster.validate", "jobs.cluster.limits")


@pytest.fixture
def environment_at_import(tmp_path):
    """Return a function that starts a program and returns Ray's variables at the moment when it imports Ray."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text(REPORT_ENVIRONMENT)
    base = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}

    def start(*command, **variables):
        environment = base | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "RAY_TMPDIR": str(tmp_path)} | variables
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        reported = json.loads(result.stdout)
        assert reported.pop("RAY_TMPDIR") == str(tmp_path)
        return reported

    return start


def require_isolation(variables):
    assert len(variables.pop("RAY_AUTH_TOKEN")) == 64
    assert variables == USAGE_OFF | LOOPBACK_ENV | {"RAY_AUTH_MODE": "token"}


@pytest.mark.parametrize("module", RAY_MODULES)
def test_module_isolates_its_ray(environment_at_import, module):
    require_isolation(environment_at_import(sys.executable, "-m", module))


@pytest.mark.parametrize("name", ["train", "sweep", "adapt", "validate-cluster"])
def test_console_script_isolates_its_ray(environment_at_import, name):
    require_isolation(environment_at_import(SCRIPT, name))


@pytest.mark.parametrize("command", [[sys.executable, "-m", "jobs.cluster.local"], [SCRIPT, "local-cluster"]])
def test_head_takes_jobs_with_the_token_of_its_user(environment_at_import, command):
    assert environment_at_import(*command) == {}


@pytest.mark.parametrize("variables", [{"RAY_ADDRESS": "127.0.0.1:1"}, {"RAY_AUTH_MODE": "disabled"}])
def test_settings_of_the_user_hold(environment_at_import, variables):
    assert environment_at_import(sys.executable, "-m", "jobs.train", **variables) == USAGE_OFF | variables


def test_running_ray_is_joined_with_its_own_settings(environment_at_import, tmp_path):
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    assert environment_at_import(sys.executable, "-m", "jobs.train") == USAGE_OFF


def test_import_alone_changes_no_setting():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    script = "import os, jobs.train, jobs.sweep; print(sorted(name for name in os.environ if name.startswith('RAY_')))"
    result = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert not {*ast.literal_eval(result.stdout)} & {*USAGE_OFF, *LOOPBACK_ENV, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
