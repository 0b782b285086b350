"""Validation of forms by the commands' own parsers, so that a mistake gets the very sentence that the command gives."""

from collections.abc import Sequence
from pathlib import Path

from equipoise.errors import EquipoiseError
from jobs.cli.option_parser import parse_options
from services.site.jobs_on_ray.command_forms import OPTIONS_LOCK, CommandForm
from services.site.jobs_on_ray.form_arguments import FormValues, build_arguments


def check_form(form: CommandForm, values: FormValues, results: Path) -> tuple[list[str], str]:
    """Return the arguments of a form as far as they can be built, and what is wrong with them, if anything."""
    try:
        arguments = build_arguments(form, values, results)
    except EquipoiseError as error:
        return [], str(error)
    try:
        parse_arguments(form, arguments)
    except EquipoiseError as error:
        return arguments, str(error)
    return arguments, ""


def parse_arguments(form: CommandForm, arguments: Sequence[str]) -> None:
    """Refuse arguments that the command refuses when it starts."""
    with OPTIONS_LOCK:
        options = parse_options(form.options_class, arguments, f"equipoise {form.command}")
    if validate := getattr(options, "validate", None):
        validate()
    if not any(argument == "--out" for argument in arguments):
        raise EquipoiseError("option-missing", "missing: --out", "give a name for the folder of the results")
