"""`equipoise.report`: what a training program prints for the sweep that started it."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import equipoise
from equipoise.runs.reports import parse_json_report


def test_a_report_is_one_line_that_its_reader_understands(capsys):
    before = time.monotonic()
    equipoise.report(examples=np.int64(128), metric=torch.tensor(0.5), seconds=1.5)
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    report = parse_json_report(line)
    assert (report.examples, report.metric, report.seconds) == (128, 0.5, 1.5)
    assert before <= report.clock <= time.monotonic()


def test_what_is_not_known_is_left_out(capsys):
    equipoise.report(examples=0)
    assert json.loads(capsys.readouterr().out).keys() == {"examples", "clock"}


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_of_several_processes_the_first_reports(capsys, monkeypatch, rank, lines):
    monkeypatch.setenv("RANK", rank)
    equipoise.report(examples=1)
    assert capsys.readouterr().out.count("\n") == lines


def test_a_report_is_sent_at_once_even_if_the_program_is_killed_after_it():
    program = "import os\nfrom equipoise.runs.reporting import report\nreport(examples=3)\nos._exit(0)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert parse_json_report(result.stdout).examples == 3
