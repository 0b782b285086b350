"""Nonsense in a form gets the very sentence that the command prints."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs import train
from services.site.jobs_on_ray.command_forms import build_command_form
from services.site.jobs_on_ray.validation import check_form

NONSENSE = [
    {"lr": "fast"},
    {"lr": "-1"},
    {"batch-size": "0"},
    {"workers": "3:1"},
    {"precision": "fp7"},
    {"sync": "sometimes"},
    {"command": "python train.py"},
    {"pipeline-schedule": "gpipe", "optimizer": "magic"},
    {"lora-rank": "3"},
]


@pytest.mark.parametrize("values", NONSENSE, ids=lambda values: "-".join(values))
def test_a_form_refuses_what_the_command_refuses_with_its_sentence(values, tmp_path, monkeypatch, capsys):
    arguments, problem = check_form(
        build_command_form("train"), {"workload": "digits", "out": "new", **values}, tmp_path
    )
    monkeypatch.setattr(sys, "argv", ["equipoise train", *arguments])
    assert train.main() == 2
    printed = capsys.readouterr().err.removeprefix("error: ")
    assert problem and printed.rpartition(" [")[0] == problem


def test_a_form_without_what_is_required_says_what_is_missing(tmp_path):
    assert "--workload or --command" in check_form(build_command_form("train"), {"out": "new"}, tmp_path)[1]
    assert "missing: --run" in check_form(build_command_form("publish"), {"out": "new"}, tmp_path)[1]
    assert "missing: --out" in check_form(build_command_form("adapt"), {"bundle": "b"}, tmp_path)[1]


def test_a_good_form_has_nothing_wrong_with_it(tmp_path):
    arguments, problem = check_form(build_command_form("sweep"), {"workload": "digits", "out": "first"}, tmp_path)
    assert problem == "" and arguments == ["--out", str(tmp_path / "first"), "--workload", "digits"]


def test_many_people_get_their_own_sentences_and_standard_output_stays(tmp_path):
    forms = [(build_command_form(command), {"out": "new"}) for command in ("publish", "check", "train")] * 5
    alone, stdout = [check_form(form, values, tmp_path)[1] for form, values in forms[:3]], sys.stdout
    with ThreadPoolExecutor(8) as pool:
        together = [*pool.map(lambda pair: check_form(*pair, tmp_path)[1], forms)]
    assert all(alone) and together == alone * 5 and sys.stdout is stdout
