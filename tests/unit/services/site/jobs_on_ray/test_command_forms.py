"""Forms have every option of their command, with its help, choices and default."""

import pytest

from jobs.cli.option_parser import list_option_names
from services.site.jobs_on_ray.command_forms import build_command_form, describe_default
from services.site.jobs_on_ray.command_topics import LAYOUTS, OTHER_TOPIC, TOPICS

MAX_FIRST_FIELDS = 9


@pytest.mark.parametrize("command", LAYOUTS)
def test_a_form_has_every_option_of_the_command_once(command):
    form = build_command_form(command)
    names = [field.name for field in form.fields]
    known = {name.removeprefix("--") for name in list_option_names(form.options_class)} - {"help"}
    switched_off = {field.option.off_flag.removeprefix("--") for field in form.fields if field.control == "switch"}
    assert set(names) == known - switched_off and len(set(names)) == len(names)


@pytest.mark.parametrize("command", LAYOUTS)
def test_a_form_begins_with_few_options_that_exist_and_each_has_help(command):
    form = build_command_form(command)
    assert [field.name for field in form.first] == [*form.layout.first]
    assert len(form.first) <= MAX_FIRST_FIELDS and form.first[0].name == "out"
    assert all(field.help for field in form.fields)


def test_most_options_of_training_stand_below_a_topic():
    others = [group for group in build_command_form("train").folded if group.heading == OTHER_TOPIC]
    assert sum(len(group.fields) for group in others) <= 3


def test_every_topic_names_options_that_some_form_has():
    names = {field.name for command in LAYOUTS for field in build_command_form(command).fields}
    assert {flag for flags in TOPICS.values() for flag in flags.split()} <= names


def test_fields_have_the_control_of_their_type():
    fields = {field.name: field for field in build_command_form("train").fields}
    assert fields["precision"].option.choices == ("fp32", "bf16", "fp64")
    assert [fields[name].control for name in ("precision", "compile", "batch-size")] == ["choice", "switch", "text"]
    assert [fields[name].input_mode for name in ("batch-size", "lr", "workload")] == ["numeric", "decimal", "text"]


@pytest.mark.parametrize(("default", "text"), [(0.05, "0.05"), ((1, 2), "1 2"), (None, ""), (True, "on"), ((), "")])
def test_a_default_is_described_as_one_would_type_it(default, text):
    assert describe_default(default) == text
