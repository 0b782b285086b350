"""Arguments of `equipoise serve`: what its help lists, and what is refused before Ray Serve starts."""

import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest

from jobs.cli.serve_arguments import (
    RAY_FLAGS,
    RAY_OPTIONS_WITH_VALUE,
    YAML_ONLY,
    format_serve_help,
    read_argument_texts,
    require_serve_arguments,
)
from jobs.command_options.class_fields import read_attribute_docs
from tests.support.errors import raises_code

with warnings.catch_warnings():  # Ray's own use of pydantic warns
    warnings.simplefilter("ignore")
    from ray.serve.scripts import run as ray_serve_run

    from services.app import AppSettings

ROOT = Path(__file__).parents[3]


def run_serve(*arguments):
    command = [sys.executable, "-c", "import sys; from jobs.cli.main import main; sys.exit(main())", "serve"]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_every_argument_of_the_service_is_listed_with_the_text_of_its_setting():
    texts = read_attribute_docs(AppSettings)
    expected = {name: texts[name] for name in AppSettings.model_fields if name not in YAML_ONLY}
    assert read_argument_texts() == expected
    lines = [line.split() for line in format_serve_help().splitlines()]
    assert all([name, *text.split()] in lines for name, text in expected.items())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("bundle=x", "-h")])
def test_help_is_ours(arguments):
    result = run_serve(*arguments)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, format_serve_help(), "")


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (["--bundle", "x", "--port", "1"], "option-format", "give bundle=x"),
        (["--bundle=x"], "option-format", "give bundle=x"),
        (["--bundle"], "option-format", "give bundle=VALUE"),
        (["bundle=x", "--port", "--drift"], "option-format", "give port=VALUE"),
        (["bundle=x", "--prot", "80"], "option-format", "give port=80"),
        (["api-keys-file=keys"], "option-format", "give api_keys_file=keys"),
        (["bundles/x"], "option-format", "give bundle=bundles/x"),
        (["s3://bucket/open-sesame?region=y"], "option-format", "give bundle=URL"),
        (["--webhook", "https://host/open-sesame"], "option-format", "give webhook=URL"),
        (["--webhook=https://host/open-sesame"], "option-format", "give webhook=URL"),
        (["bundle=x", "port", "80"], "option-format", "give port=80"),
        (["bundle=x", "--zzzz"], "option-unknown", "equipoise serve --help lists the arguments"),
    ],
)
def test_what_is_not_name_and_value_is_refused_with_what_to_give(arguments, code, remedy):
    with raises_code(code, "arguments of serve are NAME=VALUE", remedy) as raised:
        require_serve_arguments(arguments)
    assert "open-sesame" not in str(raised.value)


def test_refusal_is_one_sentence():
    result = run_serve("--bundle", "X", "--port", "1")
    sentence = "error: arguments of serve are NAME=VALUE, got --bundle; give bundle=X [option-format]\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", sentence)


def test_all_options_of_ray_serve_pass_and_no_others():
    options = [entry for entry in ray_serve_run.params if isinstance(entry, click.Option)]
    names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert names == {*RAY_OPTIONS_WITH_VALUE, *RAY_FLAGS}
    for name in RAY_OPTIONS_WITH_VALUE:
        require_serve_arguments([name, "any", "bundle=x"])
    require_serve_arguments([*RAY_FLAGS, "bundle=x", "--working-dir=any", "-dany"])
