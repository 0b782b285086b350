"""No field of a form can become anything but the value of its option, neither for the command nor for the shell."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.errors import EquipoiseError
from jobs.cli.option_parser import parse_options
from services.site.jobs_on_ray.command_forms import build_command_form
from services.site.jobs_on_ray.form_arguments import build_arguments, format_command_line, read_out_folder
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.jobs_on_ray.job_store import SubmittedJob

NASTY = ["; touch pwned", "$(touch pwned)", "`touch pwned`", "a' ; touch pwned ; '", "|| touch pwned", "\n touch pwned"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from([*NASTY, "--out", "-h", "*"])
COMMANDS = st.sampled_from(["train", "publish", "plan"])
FREE_TEXTS = {"train": "data", "publish": "name", "plan": "deadline"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    results = tmp_path_factory.mktemp("arguments") / "results"
    (results / "first").mkdir(parents=True)
    return results


@pytest.fixture(scope="module")
def printing_program(tmp_path_factory):
    """A program in place of Python that prints its arguments, each with a null byte behind it."""
    program = tmp_path_factory.mktemp("program") / "print"
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    return program


def test_values_become_arguments_in_the_order_of_the_form(results):
    form = build_command_form("train")
    values = {"workload": "digits", "out": "new", "lr": " 0.1 ", "augment": "off", "compile": "off", "threads": ""}
    arguments = build_arguments(form, values, results)
    assert arguments == ["--out", str(results / "new"), "--workload", "digits", "--lr", "0.1", "--no-augment"]
    assert read_out_folder(arguments) == str(results / "new")
    assert format_command_line("train", arguments, results.parent) == (
        "equipoise train --out results/new --workload digits --lr 0.1 --no-augment"
    )


def test_results_are_named_below_the_results_folder_and_other_paths_are_as_given(results):
    values = {"out": "b", "run": "first", "plan": "s3://bucket/plan.json"}
    arguments = build_arguments(build_command_form("publish"), values, results)
    assert arguments[1:4] == [str(results / "b"), "--run", str(results / "first")]
    assert arguments[5] == "s3://bucket/plan.json"
    values = {"out": "c", "data": "photos", "bundle": "/srv/bundle"}
    arguments = build_arguments(build_command_form("check"), values, results)
    assert arguments[3:] == ["/srv/bundle", "--data", "photos"]


@pytest.mark.parametrize("name", ["../away", "/away", ".site", "a/../../b", "first\0"])
def test_a_job_writes_nowhere_but_below_the_results(results, name):
    with pytest.raises(EquipoiseError, match=r"^cannot use"):
        build_arguments(build_command_form("train"), {"out": name}, results)


def test_several_values_are_separated_and_none_becomes_an_option(results):
    form = build_command_form("sweep")
    assert build_arguments(form, {"workers": "1 2  4"}, results) == ["--workers", "1", "2", "4"]
    with pytest.raises(EquipoiseError, match="begins with a dash"):
        build_arguments(form, {"workers": "1 --out away"}, results)


def test_an_unknown_option_is_refused(results):
    with pytest.raises(EquipoiseError, match="unknown option --color"):
        build_arguments(build_command_form("train"), {"color": "red"}, results)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, command=COMMANDS)
def test_any_text_reaches_the_command_as_the_value_of_its_option_alone(results, text, command):
    form, name = build_command_form(command), FREE_TEXTS[command]
    required = {"train": {"workload": "digits"}, "publish": {"run": "first"}}
    values = {"out": "new", name: text} | required.get(command, {})
    try:
        arguments = build_arguments(form, values, results)
        options = parse_options(form.options_class, arguments, "equipoise")
    except EquipoiseError:
        return
    if text.strip():
        assert str(getattr(options, name)) == text.strip()
    assert str(options.out) == str(results / "new")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS.filter(lambda text: "\0" not in text), max_size=4))
def test_the_shell_that_ray_starts_sees_arguments_and_no_commands(results, texts, printing_program, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(printing_program))
    desk = JobDesk(None, results, results / ".site")
    folder = results / "it's $HOME; here"
    folder.mkdir(exist_ok=True)
    job = SubmittedJob(
        id="train-x", command="train", arguments=tuple(texts), out="", folder=str(folder), started_by="", submitted=0.0
    )
    desk.log_file(job.id).unlink(missing_ok=True)
    subprocess.run(["/bin/sh", "-c", desk.build_submission(job)["entrypoint"]], check=True)
    printed = desk.log_file(job.id).read_bytes().decode().split("\0")[:-1]
    assert printed == ["-m", "jobs.train", *texts]
    assert not [*results.rglob("pwned")]
