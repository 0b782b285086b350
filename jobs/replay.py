"""Replay an asynchronous run in this process from its log of arrivals, and compare the weights.

The workers of `--sync async:S` push gradients when they are ready, so two runs of the same command differ. The log of
arrivals (arrivals.jsonl in the folder of the run) says which gradients were in each update, and at which weights they
were computed. From it the weights can be computed again, up to the last bits, on any machine.

Exit status: 0 the weights are equal; 1 they differ, or the object store did not answer; 2 wrong options or files.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from equipoise.command_line import FAILED, command
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable, pluralize
from equipoise.parameter_store.arrivals.lap_arrivals import ARRIVALS_FILE, LapArrivals
from equipoise.runs.folder import read_finished_run
from equipoise.runs.record import Record
from equipoise.storage.atomic import open_local_copy
from equipoise.training.store_steps.replay import largest_difference, replay_run
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import PathOrUrl, validate_locations
from jobs.ray_train.checkpoint_files import load_arrivals

MAX_DIFFERENCE_BY_PRECISION = {"fp64": 1e-12, "fp32": 1e-3, "bf16": 1e-1}
"""relative differences up to which weights count as equal: rounding, which grows over many steps"""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    __doc__ = __doc__

    run: PathOrUrl
    """folder or URL of a finished run that was trained with --sync async:S"""


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(ReplayOptions)
    validate_locations(options.run)
    record = read_finished_run(options.run, "replay")
    laps = read_arrivals(options.run, record)
    torch.set_num_threads(record.config.threads)
    difference = largest_difference(replay_run(record.config, laps), read_weights(options.run))
    is_equal = difference <= MAX_DIFFERENCE_BY_PRECISION[record.config.precision]
    print(make_printable(f"{options.run}: {describe_replay(laps, difference, is_equal)}"))
    return 0 if is_equal else FAILED


def read_arrivals(run: Path, record: Record) -> list[LapArrivals]:
    """Read the log of a run; refuse a run without one, and a log that is damaged or of other laps."""
    config, path = record.config, run / ARRIVALS_FILE
    if config.sync_method.kind != "async":
        raise EquipoiseError(
            "run-unusable",
            f"cannot replay --run {run}: it was trained with --sync {config.sync}, the same command trains it again",
            "give a run with --sync async:S",
        )
    if not path.is_file():
        raise EquipoiseError(
            "run-unusable", f"cannot replay --run {run}: it has no {ARRIVALS_FILE}", "give the folder of a finished run"
        )
    return load_arrivals(path, config, record.laps)


def read_weights(run: Path) -> dict[str, Tensor]:
    """Read the weights that a run has left."""
    path = run / "model.safetensors"
    try:
        with open_local_copy(path) as file:
            weights: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise EquipoiseError("run-damaged", f"cannot read {path}: {error}", "train the run again") from None
    return weights


def describe_replay(laps: list[LapArrivals], difference: float, is_equal: bool) -> str:
    """Return one sentence on the replay of a run."""
    updates = pluralize(sum(len(lap.updates) for lap in laps), "update")
    staleness = pluralize(max(max(lap.staleness) for lap in laps), "update")
    facts = f"the replay of {updates} in {pluralize(len(laps), 'lap')}, with gradients at most {staleness} old,"
    if difference == 0:
        return f"{facts} gives the same weights to the last bit"
    size = f"largest relative difference of a tensor {difference:.1e}"
    return (
        f"{facts} gives the same weights but for rounding ({size})"
        if is_equal
        else (f"{facts} gives other weights ({size})")
    )


if __name__ == "__main__":
    sys.exit(main())
