"""End the Ray that `equipoise up` started for a results folder, with the jobs that run on it.

Jobs get a minute to write their checkpoints; the same commands resume them later. Results stay as they are, and a site
that still runs shows them.

Exit status: 0 ended, or nothing ran; 2 wrong options or files; 143 stopped.
"""

from equipoise.startup_signals import exit_on_startup_signals

if __name__ == "__main__":
    exit_on_startup_signals()

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable, pluralize
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath
from jobs.cluster.processes import wait_until
from jobs.site_ray.detached_ray import (
    DEFAULT_RESULTS,
    JOB_STOP_SECONDS,
    STATE_FOLDER,
    find_detached_ray,
    read_ray_token,
    stop_detached_ray,
)
from jobs.site_ray.ray_dashboard import RayDashboard

ACTIVE_STATUSES = ("PENDING", "RUNNING")  # of Ray's jobs


@dataclass(frozen=True, kw_only=True)
class DownOptions:
    __doc__ = __doc__

    results: LocalPath = DEFAULT_RESULTS
    """folder of all results, as given to equipoise up"""


@command(on_stop="stopped; the same command ends what is left")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse_options(DownOptions, arguments)
    require_local_paths({"--results": options.results})
    if not options.results.is_dir():
        raise EquipoiseError("path-kind", f"cannot read --results {options.results}: it is not a folder")
    state_folder = options.results.absolute() / STATE_FOLDER
    facts = find_detached_ray(state_folder)
    if facts is None:
        print(f"no Ray runs that equipoise up started for {options.results}")
        return 0
    stop_jobs(RayDashboard(facts.dashboard_url, read_ray_token(state_folder)))
    stop_detached_ray(state_folder, facts)
    print(f"ended the Ray of {options.results}")
    return 0


def stop_jobs(dashboard: RayDashboard) -> None:
    """Say which jobs run, stop them and wait until they have written their checkpoints."""
    with suppress(EquipoiseError, TimeoutError):  # a Ray that does not answer is ended all the same
        jobs = list_active_jobs(dashboard)
        if jobs:
            names = ", ".join(jobs)
            print(make_printable(f"stopping {pluralize(len(jobs), 'job')}: {names}"), flush=True)
        for job in jobs:
            with suppress(EquipoiseError):  # it has ended meanwhile: the others must be stopped all the same
                dashboard.request("POST", f"/api/jobs/{job}/stop")
        wait_until(lambda: not list_active_jobs(dashboard), JOB_STOP_SECONDS)


def list_active_jobs(dashboard: RayDashboard) -> list[str]:
    """Return the ids of the jobs that run or wait."""
    jobs = dashboard.request("GET", "/api/jobs/")
    return [job["submission_id"] for job in jobs if job.get("status") in ACTIVE_STATUSES and job.get("submission_id")]


if __name__ == "__main__":
    sys.exit(main())
