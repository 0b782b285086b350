"""jobs.profile refuses what cannot be profiled, and takes every option of training."""

import sys

import pytest

from equipoise.profiling.profile_report import PROFILE_FILE
from jobs import profile
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import find_result_kind
from jobs.profile import TIMED_PROPOSALS, ProfileOptions
from tests.support.errors import raises_code


def parse_profile_options(*arguments):
    return parse_options(ProfileOptions, ["--out", "x", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--command", "python train.py"), "option-conflict"),
        (("--workload", "digits", "--steps", "1"), "option-range"),
        (("--workload", "digits", "--steps", "1001"), "option-range"),
        (("--workload", "digits", "--consider", "magic"), "option-choice"),
        (("--workload", "digits", "--workers", "2", "--sync", "async:1"), "option-conflict"),
        (("--workload", "digits", "--workers", "2", "--sharding", "pipeline:2"), "option-conflict"),
    ],
)
def test_what_cannot_be_profiled_is_refused(arguments, code):
    with raises_code(code):
        parse_profile_options(*arguments)


def test_options_of_training_reach_the_run():
    options = parse_profile_options("--workload", "digits", "--workers", "2", "--precision", "bf16", "--try")
    assert options.try_proposals and options.steps == 20
    assert set(options.consider) == set(TIMED_PROPOSALS) - {"compile"}
    config = options.train_config()
    assert (config.workers, config.precision, config.workload) == (2, "bf16", "digits")
    assert parse_profile_options("--workload", "digits", "--consider", "compile", "bf16").consider == (
        "compile",
        "bf16",
    )


def test_folder_of_another_result_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys):
    (tmp_path / "record.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["profile", "--workload", "digits", "--out", str(tmp_path)])
    assert profile.main() == 2
    assert "holds a run, and this command writes a profile" in capsys.readouterr().err


def test_folder_of_a_profile_is_known_as_one(tmp_path):
    (tmp_path / PROFILE_FILE).write_text("{}")
    assert find_result_kind(tmp_path) == "profile"
