"""A bug of ours ends every command in a traceback and exit status 1; it is never reported as the user's mistake."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
import tyro

from equipoise.command_line import CommandParser
from jobs.cli.main import COMMAND_MODULES
from tests.support.ray_cluster import ROOT


def raise_broadcasting_error(*_, **__):
    return np.ones(2) + np.ones(3)


@pytest.mark.parametrize("module_name", [*COMMAND_MODULES.values(), "jobs.cluster.limits"])
def test_bug_in_a_command_keeps_its_traceback(module_name, monkeypatch):
    module = importlib.import_module(module_name)
    for parser, method in ((CommandParser, "parse_args"), (tyro, "cli")):
        monkeypatch.setattr(parser, method, raise_broadcasting_error)
    with pytest.raises(ValueError, match="could not be broadcast"):
        module.main()


BROKEN_COMMAND = """
import sys
import numpy as np
from jobs import plan
plan.build_device_plan = lambda *requests: np.ones(2) + np.ones(3)
sys.argv = ["plan", "--system", "tests/data/digits/system.csv", "--out", sys.argv[1]]
sys.exit(plan.main())
"""


def test_exit_status_of_a_bug_is_1_with_its_traceback(tmp_path):
    command = [sys.executable, "-c", BROKEN_COMMAND, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("Traceback") and "could not be broadcast" in result.stderr
