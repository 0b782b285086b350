"""An unknown option is refused in one sentence with the option that was probably meant, by every way to start it."""

import importlib
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from equipoise.errors import EquipoiseError
from jobs import train
from jobs.cli.option_parser import list_option_names, parse_options, require_known_options
from tests.support.ray_cluster import ROOT

SCRIPT = str(Path(sys.executable).with_name("equipoise"))
MISTYPED = [
    (("train", "--workload", "digits", "--out", "x", "--bach-size", "3"), "--bach-size", "--batch-size"),
    (("train", "--bach-size=3"), "--bach-size", "--batch-size"),  # named before the options that are missing
    (("train", "--workload", "digits", "--out", "x", "--no-compil"), "--no-compil", "--no-compile"),
    (("sweep", "--workload", "digits", "--out", "x", "--wrkers", "1", "2"), "--wrkers", "--workers"),
    (("publish", "--rn", "runs/x", "--out", "bundles/x"), "--rn", "--run"),
    (("contact_sheet", "--workload", "digits", "--out", "x", "--augment.kelvn", "3"), "--augment.kelvn", None),
]


@pytest.mark.parametrize(("command", "mistyped", "meant"), MISTYPED)
def test_mistyped_option_is_answered_with_the_option_that_was_meant(command, mistyped, meant, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", list(command))
    assert importlib.import_module(f"jobs.{command[0]}").main() == 2
    sentence = f"error: unknown option {mistyped}; did you mean {meant or '--augment.kelvin'}? [option-unknown]\n"
    assert capsys.readouterr().err == sentence


def run_elsewhere(*command, folder):
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "typed"),
    [((SCRIPT, "train"), "equipoise train"), ((sys.executable, "-m", "jobs.train"), "python -m jobs.train")],
)
def test_command_is_named_as_it_was_typed(command, typed, tmp_path):
    result = run_elsewhere(*command, "--quux", "1", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr == f"error: unknown option --quux; {typed} --help lists them [option-unknown]\n"


def test_help_and_missing_options_are_reported_by_tyro_as_before(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["equipoise train", "--help"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: equipoise train ")
    monkeypatch.setattr("sys.argv", ["equipoise train"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and "--workload" in errors and "equipoise train --help" in errors
    assert str(ROOT) not in errors


def test_shell_completion_of_tyro_and_a_bare_separator_are_no_unknown_options():
    require_known_options(["--tyro-print-completion", "bash", "--", "--out=x"], ["--out"])


def test_mistyped_command_of_the_console_script_is_answered_with_the_one_that_was_meant(tmp_path):
    environment = {"PYTHONPATH": str(ROOT)}
    result = subprocess.run([SCRIPT, "publsh"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 2 and "no command 'publsh'; did you mean publish? there are: train, " in result.stderr


@dataclass(frozen=True, kw_only=True)
class Scenery:
    sky_color: str = "blue"
    """not to be confused with --ground-color"""


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """Draw.

    Beside --rows, which it has, this text names --columns, which it does not have.
    """

    rows: int
    is_flipped: bool = False
    scenery: Scenery = field(default_factory=Scenery)


def test_options_are_those_of_the_class_and_not_words_of_its_texts():
    names = {"--help", "--rows", "--is-flipped", "--no-is-flipped", "--scenery.sky-color"}
    assert {*list_option_names(PictureOptions)} == names


def test_options_are_accepted_in_every_spelling():
    expected = PictureOptions(rows=-3, is_flipped=True, scenery=Scenery(sky_color="--grey"))
    for spelling in (("--is_flipped", "--scenery.sky_color=--grey"), ("--is-flipped", "--scenery.sky-color=--grey")):
        assert parse_options(PictureOptions, ["--rows", "-3", *spelling]) == expected


@pytest.mark.parametrize("tokens", [["-3"], ["rows"], ["--rows=--columns"]])
def test_values_are_not_taken_for_options(tokens):
    require_known_options(tokens, ["--rows"])


def test_error_has_a_stable_code():
    with pytest.raises(EquipoiseError) as error:
        parse_options(PictureOptions, ["--rws", "3"])
    assert error.value.code == "option-unknown"
