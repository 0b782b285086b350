"""Page of the command line: every command with its options."""

import importlib
import inspect
import re

from docs.generate.markdown import (
    build_page,
    format_code,
    format_fence,
    format_table,
    make_anchor,
    mark_code,
    start_sentence,
)
from docs.generate.options import OptionFacts, OptionGroup, is_required, load_option_groups
from jobs.cli.main import COMMAND_MODULES, SERVE_HELP

EXIT_STATUS = re.compile(r"Exit status: (.*)\Z", re.DOTALL)
COMMANDS_INTRODUCTION = """\
`equipoise COMMAND` runs a command; `python -m MODULE` is the same with the module named below, for `ray job submit`
and for machines on which the script is not on the path. `equipoise --help` lists the commands, `equipoise COMMAND
--help` the options of one, and `equipoise --version` prints the version.

An option is written `--name value`; a flag is switched on with `--name` and off with `--no-name`. A dash in the column
of defaults means that nothing is set. Every command prints what it made, and ends with one of a few
[exit statuses](exit-codes.md). Paths are relative to the folder that the command is started in. Where the type is
"path or URL", the [URL of an object store](environment.md#object-stores) such as `s3://bucket/folder` is accepted
too."""
SERVE_TEXT = """\
The [service arguments](service-arguments.md) are written `NAME=VALUE`. The command is `serve run services.app:build`
of Ray Serve with a Ray that listens on loopback alone. It answers until Ctrl-C. The live pages of runs have no command
of their own: `serve run services.pages:build runs=runs port=8080`."""


def build_cli_page() -> str:
    """Build the page of all commands, docs/reference/cli.md."""
    summaries = [(f"[`{name}`](#{make_anchor(f'equipoise {name}')})", read_summary(name)) for name in COMMAND_MODULES]
    summaries.append((f"[`serve`](#{make_anchor('equipoise serve')})", SERVE_HELP.partition(":")[0] + "."))
    return build_page(
        "Command line",
        COMMANDS_INTRODUCTION,
        format_table(("command", "what it does"), summaries),
        *(block for name in COMMAND_MODULES for block in build_command_section(name)),
        "## equipoise serve",
        SERVE_HELP.partition(":")[0] + ".",
        format_fence("text", "equipoise serve NAME=VALUE ..."),
        SERVE_TEXT,
    )


def build_command_section(name: str) -> list[str]:
    """Build the section of a command: purpose, usage, exit statuses and options."""
    groups = load_option_groups(name)
    summary, _, details = read_docstring(name).partition("\n")
    statuses = parse_exit_statuses(name)
    status_text = "; ".join(f"`{status}` {meaning}" for status, meaning in statuses.items())
    return [
        f"## equipoise {name}",
        mark_code(summary),
        format_fence("text", format_usage(name, groups)),
        mark_code(EXIT_STATUS.sub("", details)),
        f"[Exit status](exit-codes.md): {status_text}. Module: `{COMMAND_MODULES[name].removesuffix('.__main__')}`.",
        *(block for group in groups for block in build_group(group)),
    ]


def build_group(group: OptionGroup) -> list[str]:
    """Build the table of a group of options, below what they have in common."""
    rows = [
        (" ".join(map(format_code, option.names)), option.type, option.default, start_sentence(option.help))
        for option in group.options
    ]
    return [start_sentence(group.doc), format_table(("option", "type", "default", "meaning"), rows)]


def format_usage(name: str, groups: list[OptionGroup]) -> str:
    """Format the usage line: what must be given, and that there may be more."""
    options = [option for group in groups for option in group.options]
    required = [format_usage_part(option) for option in options if is_required(option)]
    optional = ["[OPTIONS]"] if len(required) < len(options) else []
    return " ".join(["equipoise", name, *required, *optional])


def format_usage_part(option: OptionFacts) -> str:
    """Format a required option or argument for the usage line."""
    several = " ..." * option.type.endswith("(one or more)")
    return option.names[0] + several if option.is_positional else f"{option.names[0]} {option.metavar}"


def read_docstring(name: str) -> str:
    """Return the docstring of a command's module, without indentation."""
    return inspect.cleandoc(importlib.import_module(COMMAND_MODULES[name]).__doc__ or "")


def read_summary(name: str) -> str:
    """Return the first line of a command's docstring."""
    return read_docstring(name).partition("\n")[0]


def parse_exit_statuses(name: str) -> dict[int, str]:
    """Parse the last paragraph of a command's docstring: what it means by each exit status."""
    match = EXIT_STATUS.search(read_docstring(name))
    if match is None:
        raise ValueError(f"the docstring of {COMMAND_MODULES[name]} does not end with `Exit status: ...`")
    parts = " ".join(match[1].split()).removesuffix(".").split("; ")
    return {int(status): meaning for status, _, meaning in (part.partition(" ") for part in parts)}
