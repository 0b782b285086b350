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
from tests.support.errors import raises_code
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


def test_help_is_printed_with_the_command_as_it_was_typed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["equipoise train", "--help"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: equipoise train ")


REQUIRED = ("--workload", "digits", "--out", "x")
MISTAKES = [
    ((), "missing: --out; equipoise train --help lists the options [option-missing]"),
    (("--out", "x"), "missing: --workload or --command; give one of the two [option-missing]"),
    (
        (*REQUIRED, "--command", "python train.py"),
        "got both --workload and --command; give one of the two [option-conflict]",
    ),
    ((*REQUIRED, "--lr"), "--lr needs a value; equipoise train --help lists the options [option-missing]"),
    ((*REQUIRED, "--batch-size", "x"), "--batch-size must be a whole number, got 'x' [option-format]"),
    ((*REQUIRED, "--lr=fast"), "--lr must be a number, got 'fast' [option-format]"),
    (
        (*REQUIRED, "--optimizer", "adam"),
        "--optimizer must be one of adafactor, adamw, lamb, lars, sgd, got 'adam' [option-choice]",
    ),
    ((*REQUIRED, "--lr", "-1"), "--lr must be a number from 1e-12 to 1e+06, got -1.0 [option-range]"),
    ((*REQUIRED, "--out="), "--out: got an empty string; give a path or a URL [option-format]"),
    ((*REQUIRED, "stray"), "unexpected argument 'stray'; equipoise train --help lists the options [option-unknown]"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_mistake_on_the_command_line_is_one_sentence_with_a_code(arguments, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["equipoise train", *arguments])
    assert train.main() == 2
    assert capsys.readouterr() == ("", f"error: {sentence}\n")


@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("jobs.cluster.validate", [], "option-missing"),
        ("jobs.cluster.validate", ["cluster.yaml", "--strict"], "option-unknown"),
        ("dashboards.build", ["runs", "--force"], "option-unknown"),
    ],
)
def test_commands_with_positional_arguments_refuse_mistakes_too(module, arguments, code, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [module, *arguments])
    assert importlib.import_module(module).main() == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ") and errors.endswith(f" [{code}]\n") and errors.count("\n") == 1


def test_shell_completion_of_tyro_and_a_bare_separator_are_no_unknown_options():
    require_known_options(["--tyro-print-completion", "bash", "--", "--out=x"], ["--out"])


@pytest.mark.parametrize(
    ("option", "known", "remedy"),
    [
        ("--exchange", ["--exit", "--sync", "--compression"], "did you mean --sync or --compression?"),
        ("--compression", ["--exchanges", "--compile"], "did you mean --exchanges?"),
        ("--sync=local:4", ["--exchanges"], "did you mean --exchanges?"),
        ("--compresion", ["--compression"], "did you mean --compression?"),
    ],
)
def test_an_option_of_another_command_is_answered_with_those_that_ask_for_the_same(option, known, remedy):
    with raises_code("option-unknown", remedy):
        require_known_options([option], known)


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
