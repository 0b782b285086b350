"""Compare one worker with two that share its batch: from which batch on the second pays, and why not before.

Both take the same steps with the same examples. The seconds of two workers are predicted from steps without an exchange
and from the exchange of gradients by itself, then measured in turns. Writes comparison.json and the page
comparison.html to --out; no model is kept.

Exit status: 0 both files were written; 1 a worker failed, or the object store did not answer; 2 wrong options or files;
143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass, fields
from pathlib import Path

from dashboards.comparison_page import build_comparison_page, describe_comparison
from dashboards.page import write_page
from equipoise.command_line import command
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.planning.device_comparison.comparison_report import COMPARISON_FILE, DeviceComparison
from equipoise.storage.atomic import write_json
from equipoise.workloads import load_workload
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import PathOrUrl
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots, set_worker_group_timeout
from jobs.profiling.comparison_worker import MIN_BATCHES, ComparisonWorkerConfig, compare_on_cluster
from jobs.ray_train.run import require_usable_locations, resolve_trial_paths
from jobs.timing.measurement_output import open_measurement_output, require_measurement_output

COMPARISON_PAGE_FILE = "comparison.html"
LARGEST_BATCH, COMPARED_OCTAVES = 1024, 8
MAX_COMPARISON_SECONDS = 86_400.0
SAME_STEP_OPTIONS = {"sync": "step", "sharding": "none", "compression": "none", "grad_accumulation": 1}
"""values of options with which several workers take the steps of one, each with its part of the batch"""


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(TrainConfig):
    __doc__ = __doc__

    out: PathOrUrl
    """folder or URL for comparison.json and comparison.html"""
    workers: int = 2
    """number of workers that one is compared with"""
    batch_size: int = 32
    """examples of a step of one worker, which several share"""
    batch_sizes: tuple[int, ...] = ()
    """batches to compare, of all workers together; by default --batch-size and powers of two up to 1,024"""
    predict_only: bool = False
    """predict the steps of several workers, and do not measure them"""
    seconds: float = 60.0
    """time for all turns, unless three take longer; the largest batches are left out where they would"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.command is not None:
            raise EquipoiseError("option-conflict", "cannot compare the workers of a --command", "give a --workload")
        for name, value in SAME_STEP_OPTIONS.items():
            if getattr(self, name) != value:
                flag = f"--{name.replace('_', '-')}"
                raise EquipoiseError(
                    "option-conflict", f"cannot compare workers with {flag} {getattr(self, name)}", f"omit {flag}"
                )
        if self.all_reduce == "auto":
            raise EquipoiseError(
                "option-conflict", "cannot compare workers with --all-reduce auto", "name the algorithm, or omit it"
            )
        if self.workers < 2:
            raise EquipoiseError("option-range", f"--workers must be at least 2, got {self.workers}")
        if not 0 < self.seconds <= MAX_COMPARISON_SECONDS:
            raise EquipoiseError(
                "option-range",
                f"--seconds must be above 0 and at most {MAX_COMPARISON_SECONDS:,.0f}, got {self.seconds:g}",
            )
        self.require_shared_batches()

    def require_shared_batches(self) -> None:
        """Refuse batches that the workers cannot share evenly, and too few of them."""
        for batch in (*self.batch_sizes, self.batch_size):
            if batch < self.workers or batch % self.workers:
                raise EquipoiseError(
                    "option-range",
                    f"{self.workers} workers cannot share a batch of {batch} evenly",
                    f"give multiples of {self.workers}",
                )
        if self.batch_sizes and len({*self.batch_sizes}) < MIN_BATCHES:
            raise EquipoiseError("option-range", f"--batch-sizes needs at least {MIN_BATCHES} sizes")

    def train_config(self) -> TrainConfig:
        """Return the options of the training run on one worker."""
        values = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        return TrainConfig(**values | {"workers": 1})

    def list_batches(self, train_examples: int) -> list[int]:
        """List the batches to compare, the smallest first, none larger than an epoch unless --batch-sizes says so."""
        if self.batch_sizes:
            return sorted({*self.batch_sizes})
        # from twice the number of workers on: batch normalisation needs two examples
        powers = [LARGEST_BATCH // 2**power for power in range(COMPARED_OCTAVES)]
        shared = {batch // self.workers * self.workers for batch in powers if batch >= 2 * self.workers}
        return sorted({batch for batch in shared if batch <= train_examples} | {self.batch_size})


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(ComparisonOptions)
    require_usable_locations(options, options.out)
    out = require_measurement_output(options.out, "comparison", (COMPARISON_FILE, COMPARISON_PAGE_FILE))
    workload = load_workload(options.train_config())  # here too, so that errors show at once
    batches = options.list_batches(len(workload.train))
    connect_to_cluster()
    _, gpu = require_slots(options.workers, options.threads)
    set_worker_group_timeout(elastic=False)
    with open_measurement_output(out) as ray_folder:
        comparison = compare_workers(options, batches, ray_folder, gpu)
        write_json(out / COMPARISON_FILE, comparison.to_json())
        write_page(build_comparison_page(comparison), out / COMPARISON_PAGE_FILE)
    print_left_out(batches, comparison)
    print("\n".join(describe_comparison(comparison)))
    print(f"wrote {options.out / COMPARISON_FILE} and {options.out / COMPARISON_PAGE_FILE}")
    return 0


def compare_workers(options: ComparisonOptions, batches: list[int], ray_folder: Path, gpu: bool) -> DeviceComparison:
    """Time the steps of one worker and of several on the cluster."""
    trial = resolve_trial_paths(options.train_config())
    print(
        f"{describe_cluster()}: comparing 1 worker with {options.workers} on {trial.name}, at {len(batches)} batches"
        f" from {batches[0]} to {batches[-1]}, for about {format_number(options.seconds)} s once they are up",
        flush=True,
    )
    config = ComparisonWorkerConfig(
        trial=trial,
        workers=options.workers,
        batches=batches,
        measured=not options.predict_only,
        seconds=options.seconds,
    )
    return compare_on_cluster(config, ray_folder, gpu)


def print_left_out(batches: list[int], comparison: DeviceComparison) -> None:
    """Print which batches do not fit in memory or in --seconds."""
    compared = {row.batch for row in comparison.rows}
    if left_out := [str(batch) for batch in batches if batch not in compared]:
        print(f"left out, for memory or time: {', '.join(left_out)}")


if __name__ == "__main__":
    sys.exit(main())
