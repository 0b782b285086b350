"""Templates of training commands: placeholders, names, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.command_template import (
    PLACEHOLDERS,
    fill_command,
    find_placeholders,
    find_program_name,
    find_unknown_placeholders,
    require_placeholder,
    split_command,
)
from equipoise.errors import EquipoiseError

COMMAND = "python train.py --batch-size {batch_size} --lr={lr}"


def test_settings_take_the_place_of_their_placeholders():
    assert fill_command(COMMAND, {"batch_size": 64, "lr": 0.1}) == [
        "python",
        "train.py",
        "--batch-size",
        "64",
        "--lr=0.1",
    ]


def test_a_filled_in_path_with_spaces_stays_one_argument():
    assert fill_command("train {out}", {"out": "my runs/1"}) == ["train", "my runs/1"]


@pytest.mark.parametrize("other", ["{}", "{epochs}", '{"lr": 1}', "{{lr}"])
def test_other_braces_are_left_as_they_are(other):
    assert fill_command(f"train '{other}'", {"epochs": 3} and {"seed": 0})[1] == other


@given(st.sets(st.sampled_from(PLACEHOLDERS)))
def test_placeholders_are_found(names):
    assert find_placeholders(" ".join(f"--{name} {{{name}}}" for name in sorted(names)) + " {unknown}") == names


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -u train.py --lr {lr}", "train.py"),
        ("torchrun --nproc-per-node {workers} -m package.train", "package.train"),
        ("/opt/tools/fit --lr {lr}", "fit"),
        ("env A=1 python scripts/run.py", "run.py"),
    ],
)
def test_a_command_is_named_by_its_script_or_module(command, name):
    assert find_program_name(command) == name


def test_a_missing_placeholder_is_refused_with_what_stands_instead():
    with pytest.raises(EquipoiseError, match=r"no \{batch_size\}, it has \{batch\}") as refusal:
        require_placeholder("train --batch {batch}", "batch_size")
    assert refusal.value.code == "option-format"


@pytest.mark.parametrize("command", ["", "  ", "train 'open"])
def test_a_command_that_cannot_be_split_is_refused(command):
    with pytest.raises(EquipoiseError) as refusal:
        split_command(command)
    assert refusal.value.code == "option-format"


def test_a_missing_placeholder_without_another_word_in_braces():
    with pytest.raises(EquipoiseError) as refusal:
        require_placeholder("train --lr {lr}", "batch_size")
    assert refusal.value.problem == "cannot use --command 'train --lr {lr}': it has no {batch_size}"
    assert refusal.value.remedy == "write {batch_size} where the command takes its batch size"
    require_placeholder("train --lr {lr}", "lr")


def test_words_in_braces_that_are_no_placeholders_are_each_told_once():
    assert find_unknown_placeholders("t {lr} {b} {a} {b} {{c}} { d }") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("command", "name"),
    [("python -m", "python"), ("", ""), ("sh run.sh x.py", "run.sh"), ("python -m tools.fit x.py", "tools.fit")],
)
def test_name_of_a_command_in_rare_shapes(command, name):
    assert find_program_name(command) == name
