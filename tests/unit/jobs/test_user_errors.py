"""What cannot be is refused by every command in a sentence, before Ray is started, and without what is secret in it."""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.ray_cluster import ROOT

SECRET = "open-sesame"  # noqa: S105
URL = f"s3:/name:{SECRET}@bucket/x"  # with a slash missing it would be a folder here
LONG = "x" * 300
TRAIN = ("train", "--workload", "digits")
SWEEP = ("sweep", "--workload", "digits")
REFUSED = [
    ((*TRAIN, "--out", URL), "has a password in it"),
    ((*TRAIN, "--out", f"s3://name:a/{SECRET}@bucket/x"), "has a password in it"),
    ((*TRAIN, "--out", "file://host/x"), "a file URL has three slashes"),
    ((*TRAIN, "--out", "x", "--plan", URL), "has a password in it"),
    ((*TRAIN, "--out", "x", "--init-from", URL), "has a password in it"),
    ((*TRAIN, "--out", "x", "--data", f"s3://name:{SECRET}@bucket/x"), "has a password in it"),
    ((*TRAIN, "--out", "x", "--data", "s3://bucket/x"), "--data takes a folder, s3://bucket/x is a URL"),
    ((*TRAIN, "--out", LONG), "File name too long"),
    ((*TRAIN, "--out", "x", "--plan", LONG), "File name too long"),
    ((*TRAIN, "--out", "x", "--init-from", LONG), "File name too long"),
    ((*TRAIN, "--out", "\udcff"), "unprintable characters"),
    ((*SWEEP, "--out", URL), "has a password in it"),
    ((*SWEEP, "--out", "x", "--seed", str(2**63 - 500)), "seed must be below 2**63"),
    ((*SWEEP, "--out", "x", "--seeds", str(10**20)), "seeds must be from 1 to 1,000"),
    (("plan", "--system", LONG, "--out", "x"), "File name too long"),
    (("plan", "--system", "x", "--out", URL), "has a password in it"),
    (("publish", "--run", LONG, "--out", "x"), "File name too long"),
    (("publish", "--run", "x", "--out", URL), "has a password in it"),
    (("check", "--bundle", URL, "--images", "x"), "has a password in it"),
    (("check", "--bundle", "x", "--images", "x", "--out", "s3://bucket/x"), "two slashes must follow"),
    (("adapt", "--bundle", "x", "--out", "s3://bucket/x"), "two slashes must follow"),
    (("adapt", "--bundle", "x", "--workers", "0"), "--workers must be at least 1, got 0"),
    (("captures", "--capture-dir", URL), "has a password in it"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_cannot_be_is_a_sentence(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", list(words))
    assert importlib.import_module(f"jobs.{words[0]}").main() == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ") and told.err.count("\n") == 1 and said in told.err
    assert SECRET not in told.err + told.out
    assert not list(tmp_path.iterdir())


AS_NOBODY = """
import os, sys
from jobs import publish, train
sys.argv = sys.argv[1:]
os.chdir(sys.argv.pop())
os.setuid(65534)
sys.exit({"publish": publish, "train": train}[sys.argv[0]].main())
"""
LOCKED = (
    (("train", "--workload", "digits", "--out", "locked/x"), "locked"),
    (("train", "--workload", "digits", "--out", "x", "--init-from", "locked"), "locked"),
    (("publish", "--run", "locked", "--out", "x"), "locked/record.json"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
@pytest.mark.parametrize(("words", "named"), LOCKED)
def test_what_may_not_be_read_is_a_sentence(words, named):
    with tempfile.TemporaryDirectory() as place:  # those of tests nobody else may look into
        Path(place).chmod(0o755)
        Path(place, "locked").mkdir(mode=0o700)
        done = subprocess.run(
            (sys.executable, "-c", AS_NOBODY, *words, place), capture_output=True, text=True, cwd=ROOT
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert named in done.stderr and "ermission" in done.stderr
