"""Command that writes the pages in docs/reference."""

import sys
from collections.abc import Callable
from pathlib import Path

from docs.generate.cli import build_cli_page
from docs.generate.environment import build_environment_page
from docs.generate.exit_codes import build_exit_codes_page
from docs.generate.file_formats import build_file_formats_page
from docs.generate.http_api import build_http_api_page
from docs.generate.python_api import build_python_api_page
from docs.generate.service_arguments import build_service_arguments_page

REFERENCE_FOLDER = Path(__file__).parents[1] / "reference"
PAGE_BUILDERS: dict[str, Callable[[], str]] = {
    "cli.md": build_cli_page,
    "service-arguments.md": build_service_arguments_page,
    "exit-codes.md": build_exit_codes_page,
    "http-api.md": build_http_api_page,
    "file-formats.md": build_file_formats_page,
    "environment.md": build_environment_page,
    "python-api.md": build_python_api_page,
}
"""function that builds each page, by its file name"""


def main() -> int:
    """Write every page and return the exit status."""
    REFERENCE_FOLDER.mkdir(exist_ok=True)
    for name, build in PAGE_BUILDERS.items():
        (REFERENCE_FOLDER / name).write_text(build(), encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
