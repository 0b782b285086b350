"""Profile the steps of a training run: where their time goes, by part, layer and line of code, and what would help.

Trains some steps on the cluster with every option of training, and writes profile.json, the page profile.html and the
timeline trace-worker-0.json.gz, which https://ui.perfetto.dev opens, to --out; no model is kept. Each proposal has a
predicted gain with an interval of 80 %, and --try measures those that promise more than 5 %.

Exit status: 0 all files were written; 1 a worker failed, or the object store did not answer; 2 wrong options or files;
143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from dashboards.page import write_page
from dashboards.profile_page import build_profile_page, describe_profile
from equipoise.command_line import command
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.observation.step_sampling import MAX_TRACED_STEPS
from equipoise.profiling.profile_report import PROFILE_FILE, TRACE_FILE, ProfileReport
from equipoise.storage.atomic import write_json
from equipoise.workloads import load_workload
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import PathOrUrl
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots, set_worker_group_timeout
from jobs.profiling.profile_worker import ProfileWorkerConfig, profile_on_cluster
from jobs.ray_train.run import require_usable_locations, resolve_trial_paths
from jobs.timing.measurement_output import open_measurement_output, require_measurement_output

PROFILE_PAGE_FILE = "profile.html"
TIMED_PROPOSALS = ("double batch", "twice the link", "bf16", "channels_last", "compile")
DEFAULT_PROPOSALS = TIMED_PROPOSALS[:-1]


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(TrainConfig):
    __doc__ = __doc__

    out: PathOrUrl
    """folder or URL for profile.json, profile.html and the timeline"""
    steps: int = 20
    """steps of the timeline; fewer if it would exceed 20 MB"""
    try_proposals: Annotated[bool, tyro.conf.arg(name="try")] = False
    """measure the proposals that promise more than 5 %, and say which are confirmed"""
    consider: tuple[str, ...] = DEFAULT_PROPOSALS
    """proposals to time separately, of: "double batch", "twice the link", bf16, channels_last and compile,
    which takes up to a minute"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.command is not None:
            raise EquipoiseError(
                "option-conflict", "cannot profile a --command", "watch its loop with equipoise.observe"
            )
        if not 2 <= self.steps <= MAX_TRACED_STEPS:
            raise EquipoiseError("option-range", f"--steps must be from 2 to {MAX_TRACED_STEPS:,}, got {self.steps}")
        if unknown := [name for name in self.consider if name not in TIMED_PROPOSALS]:
            raise EquipoiseError(
                "option-choice", f"--consider must be one of {', '.join(TIMED_PROPOSALS)}, got {unknown[0]!r}"
            )
        if self.sync_method.kind == "async" or self.sharding_method.kind == "pipeline":
            option = "--sync async" if self.sync_method.kind == "async" else "--sharding pipeline"
            raise EquipoiseError(
                "option-conflict",
                f"cannot profile a run with {option}: its workers take different steps",
                "profile it without that option",
            )

    def train_config(self) -> TrainConfig:
        """Return the options of the training run alone."""
        return TrainConfig(**{field.name: getattr(self, field.name) for field in fields(TrainConfig)})


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(ProfileOptions)
    require_usable_locations(options, options.out)
    out = require_measurement_output(options.out, "profile", (PROFILE_FILE, PROFILE_PAGE_FILE, TRACE_FILE))
    load_workload(options.train_config())  # here too, so that errors show at once
    connect_to_cluster()
    _, gpu = require_slots(options.workers, options.threads)
    set_worker_group_timeout(elastic=False)
    with open_measurement_output(out) as ray_folder:
        report = profile_training(options, out, ray_folder, gpu)
        write_json(out / PROFILE_FILE, report.to_json())
        write_page(build_profile_page(report), out / PROFILE_PAGE_FILE)
    print("\n".join(describe_profile(report)).replace("`", ""))
    print(f"wrote {', '.join(str(options.out / name) for name in (PROFILE_FILE, PROFILE_PAGE_FILE, TRACE_FILE))}")
    return 0


def profile_training(options: ProfileOptions, out: Path, ray_folder: Path, gpu: bool) -> ProfileReport:
    """Profile some steps on the workers of the cluster, of which the first writes the timeline to --out."""
    trial = resolve_trial_paths(options.train_config())
    print(
        f"{describe_cluster()}: profiling {trial.name} on {pluralize(trial.workers, 'worker')} x {trial.batch_size},"
        " once they are up",
        flush=True,
    )
    config = ProfileWorkerConfig(
        trial=trial, out=str(out), steps=options.steps, considered=options.consider, tries=options.try_proposals
    )
    return profile_on_cluster(config, ray_folder, gpu)


if __name__ == "__main__":
    sys.exit(main())
