"""Serve the site of a results folder: start, watch, compare, plan, publish and serve in a browser.

Runs on the Ray at --ray, or on the one that an earlier call started for the folder, or starts one on this machine,
which listens on loopback alone. Ctrl-C ends the site; the Ray and its jobs go on, and the same command shows them
again. `equipoise down` ends that Ray.

Exit status: 0 ended by Ctrl-C; 1 the disk is full; 2 wrong options or files; 143 stopped before it served.
"""

from equipoise.startup_signals import exit_on_startup_signals

if __name__ == "__main__":
    exit_on_startup_signals()

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.runs.folder import lock_folder, require_writable
from equipoise.storage.location import require_http_url
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath, OptionalLocalPath
from jobs.site_ray.detached_ray import (
    DEFAULT_RESULTS,
    STATE_FOLDER,
    find_detached_ray,
    read_ray_token,
    start_detached_ray,
)
from jobs.site_ray.ray_dashboard import RayDashboard, read_client_token

SERVER_MODULE = "services.site.site_server"  # started by its name: commands and services are independent of each other
DEFAULT_SITE_PORT = 8080
GOES_ON = "the site has ended; its Ray and the jobs on it go on: the same command shows them, equipoise down ends them"


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    __doc__ = __doc__

    results: LocalPath = DEFAULT_RESULTS
    """folder of all results; created if there is none"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 for all of this machine, which needs --api-keys-file"""
    port: int = DEFAULT_SITE_PORT
    """TCP port to listen on"""
    api_keys_file: OptionalLocalPath = None
    """file with a line ROLE KEY for each API key, readable by its owner only; a role is view, label or run"""
    certfile: OptionalLocalPath = None
    """file with the TLS certificate chain"""
    keyfile: OptionalLocalPath = None
    """file with the private key of --certfile"""
    ray: str | None = None
    """URL of the dashboard of a running Ray, such as http://127.0.0.1:8265, to run jobs on"""
    cpus: int | None = None
    """CPUs of the Ray that is started, which limits how many workers run at once; by default all of this machine"""

    def validate(self) -> None:
        """Refuse options out of range, and folders that cannot be used."""
        paths = {"--results": self.results, "--api-keys-file": self.api_keys_file}
        require_local_paths(paths | {"--certfile": self.certfile, "--keyfile": self.keyfile})
        if not 1 <= self.port <= 65535:
            raise EquipoiseError("option-range", f"--port must be from 1 to 65535, got {self.port}")
        if self.cpus is not None and not 1 <= self.cpus <= 4096:
            raise EquipoiseError("option-range", f"--cpus must be from 1 to 4096, got {self.cpus}")
        if self.cpus is not None and self.ray is not None:
            raise EquipoiseError("option-conflict", "--cpus has no effect with --ray", "leave out one of them")
        if self.ray is not None:
            require_http_url("--ray", self.ray, "http://127.0.0.1:8265, the dashboard of a Ray")


@command()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse_options(UpOptions, arguments)
    options.validate()
    require_writable(options.results)
    state_folder = options.results.absolute() / STATE_FOLDER
    with report_path_errors(f"cannot use --results {options.results}"):
        state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    server = importlib.import_module(SERVER_MODULE)
    settings = server.parse_site_settings(build_settings(options))
    with lock_folder(state_folder):
        url, token = join_ray(options, state_folder)
        try:
            server.serve_site(settings.model_copy(update={"ray_dashboard": url, "ray_token": token}))
        except KeyboardInterrupt:
            print(f"\n{GOES_ON}", file=sys.stderr)
    return 0


def build_settings(options: UpOptions) -> dict[str, Any]:
    """Return the settings of the server, but for the Ray that it uses."""
    paths = {name: getattr(options, name) for name in ("api_keys_file", "certfile", "keyfile")}
    return {
        "host": options.host,
        "port": options.port,
        "results": options.results.absolute(),
        **{name: str(path) if path else None for name, path in paths.items()},
    }


def join_ray(options: UpOptions, state_folder: Path) -> tuple[str, str | None]:
    """Return the URL and the token of the Ray that the site uses; start one if there is none."""
    if options.ray is not None:
        dashboard = RayDashboard(options.ray, read_client_token(os.environ))
        dashboard.request("GET", "/api/jobs/")  # refuses an address at which no Ray answers
        return dashboard.url, dashboard.token
    facts = find_detached_ray(state_folder)
    if facts is None:
        print("starting Ray, which takes about ten seconds", flush=True)
        facts = start_detached_ray(state_folder, options.cpus)
    else:
        print(f"joined the Ray that was started for {options.results}", flush=True)
    return facts.dashboard_url, read_ray_token(state_folder)


if __name__ == "__main__":
    sys.exit(main())
