"""Every command refuses invalid options in one sentence, before it starts Ray and without showing secrets."""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.ray_cluster import ROOT

SECRET = "open-sesame"  # noqa: S105
SECRET_URL = f"s3:/name:{SECRET}@bucket/x"  # with one slash missing it would be a folder name
TOO_LONG_NAME = "x" * 300
TRAIN_COMMAND = ("train", "--workload", "digits")
SWEEP_COMMAND = ("sweep", "--workload", "digits")
INVALID_COMMANDS = [
    ((*TRAIN_COMMAND, "--out", SECRET_URL), "has a password in it"),
    ((*TRAIN_COMMAND, "--out", f"s3://name:a/{SECRET}@bucket/x"), "has a password in it"),
    ((*TRAIN_COMMAND, "--out", "file://host/x"), "a file URL has three slashes"),
    ((*TRAIN_COMMAND, "--out", "x", "--plan", SECRET_URL), "has a password in it"),
    ((*TRAIN_COMMAND, "--out", "x", "--init-from", SECRET_URL), "has a password in it"),
    ((*TRAIN_COMMAND, "--out", "x", "--data", f"s3://name:{SECRET}@bucket/x"), "has a password in it"),
    ((*TRAIN_COMMAND, "--out", "x", "--data", "ftp://host/x"), "abfs://"),
    ((*TRAIN_COMMAND, "--out", "x", "--data", "memory://bucket/x"), "forgets everything"),
    ((*TRAIN_COMMAND, "--out", TOO_LONG_NAME), "File name too long"),
    ((*TRAIN_COMMAND, "--out", "x", "--plan", TOO_LONG_NAME), "File name too long"),
    ((*TRAIN_COMMAND, "--out", "x", "--init-from", TOO_LONG_NAME), "File name too long"),
    ((*TRAIN_COMMAND, "--out", "\udcff"), "unprintable characters"),
    ((*SWEEP_COMMAND, "--out", SECRET_URL), "has a password in it"),
    ((*SWEEP_COMMAND, "--out", "x", "--seed", str(2**63 - 500)), "--seed must be below 2**63"),
    (("sweep", "--workload", "tests.support.workloads:without_target", "--out", "x"), "target, and a plan"),
    ((*TRAIN_COMMAND, "--out", "x", "--lower-is-better"), "cannot apply --lower-is-better to digits"),
    ((*SWEEP_COMMAND, "--out", "x", "--lower-is-better"), "cannot apply --lower-is-better to digits"),
    ((*SWEEP_COMMAND, "--out", "x", "--seeds", str(10**20)), "seeds must be from 1 to 1,000"),
    (("plan", "--system", TOO_LONG_NAME, "--out", "x"), "File name too long"),
    (("plan", "--system", "x", "--out", SECRET_URL), "has a password in it"),
    (("publish", "--run", TOO_LONG_NAME, "--out", "x"), "File name too long"),
    (("publish", "--run", "x", "--out", SECRET_URL), "has a password in it"),
    (("check", "--bundle", SECRET_URL, "--data", "x"), "has a password in it"),
    (("check", "--bundle", "x", "--data", "x", "--out", "s3://bucket/x"), "s3://... is a URL"),
    (("adapt", "--bundle", "x", "--out", "s3://bucket/x"), "s3://... is a URL"),
    (("adapt", "--bundle", "x", "--workers", "0"), "--workers must be at least 1, got 0"),
    (("adapt", "--bundle", "", "--verdict", "x"), "empty string"),
    (("adapt", "--bundle", "x", "--verdict", "x", "--capture-dir", ""), "empty string"),
    (("adapt", "--bundle", "x", "--verdict", "x", "--data", ""), "empty string"),
    (("adapt", "--bundle", "x", "--link", SECRET_URL), "has a password in it"),
    (("captures", "--capture-dir", SECRET_URL), "has a password in it"),
    (("captures", "--capture-dir", ""), "empty string"),
    (("captures", "--capture-dir", ".", "--out", "s3://bucket/x"), "s3://... is a URL"),
    (("captures", "--capture-dir", ".", "--out", "."), "it exists already"),
    (("check", "--bundle", "", "--data", "x"), "empty string"),
    (("check", "--bundle", "x", "--data", "x", "--out", "http://host/x"), "http://... is a URL"),
    (("contact_sheet", "--workload", "digits", "--out", "http://host/x"), "http://... is a URL"),
    (("contact_sheet", "--workload", "digits", "--out", SECRET_URL), "has a password in it"),
    (("contact_sheet", "--workload", "digits", "--out", "x", "--data", ""), "empty string"),
    (("contact_sheet", "--workload", "digits", "--out", "x", "--data", SECRET_URL), "has a password in it"),
    (("adapt", "--bundle", "x", "--verdict", "x", "--data", SECRET_URL), "has a password in it"),
    (("captures", "--capture-dir", ".", "--out", ""), "--out: got an empty string"),
    (("records", ""), "empty string"),
    (("records", ".", "--out", ""), "empty string"),
    (("check", "--bundle", "x", "--data", "x", "--out", ""), "empty string"),
    (("plan", "--system", "", "--out", "x"), "--system: got an empty string"),
    ((*TRAIN_COMMAND, "--out", "x", "--plan", ""), "--plan: got an empty string"),
    (("contact_sheet", "--workload", "digits", "--out", ""), "empty string"),
    (("adapt", "--bundle", "x", "--verdict", ""), "empty string"),
    (("records", ".", "--out", f"s3://name:{SECRET}@bucket/x"), "has a password in it"),
    (("records", ".", "--out", SECRET_URL), "has a password in it"),
    (("links", "--workers", "1", "--out", "x"), "it takes at least two"),
    (("links", "--workers", "2", "--sizes", "0", "--out", "x"), "from 4 bytes to 16GiB, got 0"),
    (("links", "--workers", "2", "--sizes", "big", "--out", "x"), "give bytes such as 64KiB"),
    (("links", "--workers", "2", "--seconds", "0", "--out", "x"), "above 0"),
    (("links", "--workers", "2", "--out", SECRET_URL), "has a password in it"),
    (("records", "s3://bucket/x"), "FOLDER takes a path on this machine, s3://... is a URL"),
    ((*TRAIN_COMMAND, "--out", "memory://bucket/x"), "forgets everything"),
    ((*TRAIN_COMMAND, "--out", "ftp://host/x"), "abfs://"),
    ((*TRAIN_COMMAND, "--out", "x", "--data", ""), "empty string"),
    ((*TRAIN_COMMAND, "--out", "x", "--init-from", ""), "empty string"),
    ((*SWEEP_COMMAND, "--out", "memory://bucket/x"), "forgets everything"),
    ((*SWEEP_COMMAND, "--out", "x", "--data", ""), "empty string"),
    (("plan", "--system", "x", "--out", "memory://bucket/x"), "forgets everything"),
    (("publish", "--run", "x", "--out", "memory://bucket/x"), "forgets everything"),
]


@pytest.mark.parametrize(("command", "message"), INVALID_COMMANDS)
def test_invalid_options_are_refused_in_one_sentence(command, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", list(command))
    assert importlib.import_module(f"jobs.{command[0]}").main() == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: ") and output.err.count("\n") == 1 and message in output.err
    assert SECRET not in output.err + output.out
    assert not list(tmp_path.iterdir())


RUN_AS_NOBODY_SCRIPT = """
import os, sys
from jobs import publish, train
commands, folder = eval(sys.argv[1]), sys.argv[2]
os.chdir(folder)
os.setuid(65534)
for sys.argv in commands:
    print({"publish": publish, "train": train}[sys.argv[0]].main())
"""
COMMANDS_ON_LOCKED_FOLDER = {
    ("train", "--workload", "digits", "--out", "locked/x"): "locked",
    ("train", "--workload", "digits", "--out", "x", "--init-from", "locked"): "locked",
    ("publish", "--run", "locked", "--out", "x"): "locked/record.json",
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_folder_without_read_permission_is_reported_in_one_sentence():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        Path(folder).chmod(0o755)
        Path(folder, "locked").mkdir(mode=0o700)
        command = (sys.executable, "-c", RUN_AS_NOBODY_SCRIPT, repr([*COMMANDS_ON_LOCKED_FOLDER]), folder)
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.split() == ["2"] * len(COMMANDS_ON_LOCKED_FOLDER), result.stderr
    errors = result.stderr.splitlines()
    for error, path in zip(errors, COMMANDS_ON_LOCKED_FOLDER.values(), strict=True):
        assert error.startswith("error: ") and path in error and "ermission" in error
