"""What a sweep trains: a workload, or a training command of the user's own."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from equipoise.command_template import find_placeholders, find_unknown_placeholders, require_placeholder
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.training_setup import TrainingSetup
from equipoise.runs.reports import ReportReader
from equipoise.runs.target import Target, command_target
from equipoise.training.batch_split import depends_on_batch_split
from equipoise.training.memory.measure_sizes import measure_model_sizes
from equipoise.workloads.checks.metric_limit import require_possible_target
from jobs.cli.describe_setup import describe_command_setup, describe_training_setup
from jobs.cli.sweep_setup import load_workload_with_target, require_target
from jobs.ray_train.run import require_usable_locations
from jobs.ray_train.run_notes import describe_initialization
from jobs.ray_tune.exchanges.exchange_facts import find_gradient_shapes
from jobs.timing.command_timing_tables import time_command_ladders
from jobs.timing.step_timing import time_batch_ladders
from jobs.timing.timing_records import TimingTables

DEFAULT_WORKERS = (1, 2)

TimeSteps = Callable[[TrainConfig, dict[int, list[int]], Path, bool, float], TimingTables]
"""times the steps of batch sizes by number of workers into a folder: base, batches, folder, gpu, seconds"""


class SweepSubject(NamedTuple):
    """What a sweep trains, as far as the sweep has to know."""

    base: TrainConfig
    """options that all trials share, with the defaults of the workload; their target is the hardest one"""
    targets: tuple[Target, ...]
    """targets to plan for, the easiest first; trials run to the last"""
    setup: TrainingSetup
    num_examples: int | None
    """training examples; None for a command, which alone knows"""
    depends_on_batch_split: bool
    """whether steps depend on how workers share a global batch"""
    runs_real_workers: bool
    """whether each trial must run on all of its workers"""
    time_steps: TimeSteps
    gradient_shapes: tuple[tuple[int, ...], ...] = ()
    """shapes of the gradients of all trainable parameters; none for a command"""
    model_sizes: ModelSizes | None = None
    """sizes from which the memory of a worker follows; None where there is no limit to it"""


def load_sweep_subject(
    base: TrainConfig, out: Path, target_values: Sequence[float] = (), *, with_sizes: bool = False
) -> SweepSubject:
    """Load what a sweep trains, and print the pretrained weights it starts from; refuse what it cannot train.

    Trials run to the hardest of the targets; without any, to that of the options or of the workload. `with_sizes` asks
    for the sizes of the model, which takes two passes of it.
    """
    if base.command:
        return describe_command_subject(base, target_values)
    require_usable_locations(base, out)
    workload = load_workload_with_target(base)
    targets = workload.run_target(base).list_targets(target_values)
    require_possible_target(workload, targets[-1])
    base = set_hardest_target(base, targets)
    if initialization := describe_initialization(base, workload):
        print(make_printable(initialization), flush=True)
    return SweepSubject(
        base=base.with_defaults(workload.defaults),
        targets=targets,
        setup=describe_training_setup(base, workload, HardwareFacts()),
        num_examples=len(workload.train),
        depends_on_batch_split=base.mixup > 0 or depends_on_batch_split(workload),
        runs_real_workers=False,
        time_steps=time_batch_ladders,
        gradient_shapes=find_gradient_shapes(base, workload),
        model_sizes=measure_model_sizes(base, workload, torch.device("cpu")) if with_sizes else None,
    )


def set_hardest_target(base: TrainConfig, targets: Sequence[Target]) -> TrainConfig:
    """Return options with the last of several targets; a single one is that of the options already."""
    return replace(base, target=targets[-1].value) if len(targets) > 1 else base


def describe_command_subject(base: TrainConfig, target_values: Sequence[float] = ()) -> SweepSubject:
    """Describe a command as what a sweep trains; refuse one that a sweep cannot vary or judge."""
    command = base.command or ""
    for name in ("batch_size", "lr"):
        require_placeholder(command, name)
    ReportReader(base.metric_pattern, base.examples_pattern)  # refuses invalid patterns
    require_target(command_target(base), "cannot sweep the command")
    targets = command_target(base).list_targets(target_values)
    base = set_hardest_target(base, targets)
    if unknown := find_unknown_placeholders(command):
        print(f"note: the command keeps {{{unknown[0]}}} as it is: no such setting is filled in", file=sys.stderr)
    if "seed" not in find_placeholders(command):
        print("note: the command has no {seed}: its runs differ by chance alone", file=sys.stderr)
    return SweepSubject(
        base=base,
        targets=targets,
        setup=describe_command_setup(base, HardwareFacts()),
        num_examples=None,
        depends_on_batch_split=True,
        runs_real_workers=True,
        time_steps=time_command_ladders,
    )


def find_worker_counts(command: str | None, workers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of workers to choose from: one for a command that takes no number of workers."""
    if command is None or "workers" in find_placeholders(command) or max(workers) == 1:
        return workers
    if workers != DEFAULT_WORKERS:
        raise EquipoiseError(
            "option-conflict",
            f"cannot run the command on {max(workers)} workers: it has no {{workers}}",
            "write {workers} where it takes their number, such as torchrun --nproc-per-node {workers}, or give"
            " --workers 1",
        )
    return (1,)
