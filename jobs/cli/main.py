"""Console script `equipoise`: every command as a subcommand, `equipoise train ...` for `python -m jobs.train ...`."""

import ast
import importlib
import importlib.util
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from equipoise.command_line import REFUSED, print_error
from equipoise.errors import EquipoiseError
from equipoise.startup_signals import exit_on_startup_signals
from equipoise.version import find_version
from jobs import LOOPBACK_ENV, isolate_local_ray
from jobs.cli.serve_arguments import format_serve_help, require_serve_arguments

COMMAND_MODULES = {
    "train": "jobs.train",
    "sweep": "jobs.sweep",
    "plan": "jobs.plan",
    "publish": "jobs.publish",
    "export-page": "jobs.export_page",
    "check": "jobs.check",
    "captures": "jobs.captures",
    "label": "jobs.label",
    "adapt": "jobs.adapt",
    "records": "jobs.records",
    "replay": "jobs.replay",
    "links": "jobs.links",
    "profile": "jobs.profile",
    "compare-devices": "jobs.compare_devices",
    "pages": "dashboards.build",
    "contact-sheet": "jobs.contact_sheet",
    "demo": "jobs.demo.__main__",
    "up": "jobs.site_ray.up",
    "down": "jobs.site_ray.down",
    "local-cluster": "jobs.cluster.local",
    "validate-cluster": "jobs.cluster.validate",
}
HEAD_COMMANDS = ("local-cluster", "up", "down")  # their head takes jobs from whoever has its token
SERVE_HELP = "Serve a bundle over HTTP with Ray Serve: equipoise serve bundle=bundles/digits port=8000."


def main() -> int:
    """Run the subcommand named on the command line and return its exit status."""
    exit_on_startup_signals()
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(format_help())
        return 0
    if name == "--version":
        print(f"equipoise {find_version()}")
        return 0
    if name == "serve":
        return serve(arguments)
    if name not in COMMAND_MODULES:
        names = [*COMMAND_MODULES, "serve"]
        similar = "".join(f"did you mean {match}? " for match in get_close_matches(name, names, 1))
        return print_error(f"no command {name!r}; {similar}there are: {', '.join(names)} [option-choice]", REFUSED)
    if name not in HEAD_COMMANDS:
        isolate_local_ray()
    sys.argv = [f"equipoise {name}", *arguments]
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a workload of the user's own lies there
    command = importlib.import_module(COMMAND_MODULES[name])
    return int(command.main())


def serve(arguments: list[str]) -> int:
    """Print the help of `equipoise serve`, refuse wrong arguments, or serve and never return."""
    if not arguments or {"-h", "--help"} & {*arguments}:
        print(format_serve_help())
        return 0
    try:
        require_serve_arguments(arguments)
    except EquipoiseError as error:
        return print_error(f"{error} [{error.code}]", REFUSED)
    return run_ray_serve(arguments)


def run_ray_serve(arguments: list[str]) -> NoReturn:
    """Replace this process by `serve run services.app:build`, with a Ray that listens on loopback alone."""
    serve_script = str(Path(sys.executable).with_name("serve"))
    command = [serve_script, "run", "services.app:build", *arguments]
    os.execve(serve_script, command, LOOPBACK_ENV | os.environ)  # noqa: S606 - Ray Serve's own command line


def format_help() -> str:
    """List the commands, each with the first line of its help."""
    width = max(map(len, COMMAND_MODULES)) + 2
    lines = [f"  {name:<{width}}{read_summary(module)}" for name, module in COMMAND_MODULES.items()]
    return "\n".join(
        [
            "usage: equipoise COMMAND [OPTIONS]",
            "",
            "commands (equipoise COMMAND --help says more of each):",
            *lines,
            f"  {'serve':<{width}}{SERVE_HELP}",
        ]
    )


def read_summary(module: str) -> str:
    """Return the first line of a module's docstring without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
