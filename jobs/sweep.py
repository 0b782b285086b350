"""Measure step times and examples to the target on a cluster, recommend a plan, and confirm it.

The command times steps over workers and batch size, searches the examples to the target over global batch, learning
rate and seed, multiplies both, and trains with the plan. Run again, the same command resumes an interrupted sweep.

Exit status: 0 a training run confirmed the plan; 1 none confirmed it, or the object store did not answer; 2 wrong
options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass

from equipoise.command_line import STOPPED, command
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import validate_locations
from jobs.cluster.resources import exit_at_once
from jobs.ray_train.stopping import RESUME_HINT
from jobs.ray_tune.confirmation import RunStopped
from jobs.ray_tune.sweep import run_sweep
from jobs.ray_tune.sweep_options import SweepOptions


@dataclass(frozen=True, kw_only=True)
class SweepCommandOptions(SweepOptions):
    __doc__ = __doc__


@command(on_store_failure=RESUME_HINT)
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(SweepCommandOptions)
    options.validate()
    validate_locations(options.out, options.config.data, options.config.init_from)
    try:
        return 0 if run_sweep(options).status == "confirmed" else 1
    except (KeyboardInterrupt, RunStopped):
        print("stopped; the same command resumes the sweep", file=sys.stderr)
        exit_at_once(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
