"""Options of a sweep, and what follows from them: batch sizes, learning rates, budget, and options of its trials."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import tyro

from equipoise.config import FROM_WORKLOAD, KeptWeights, TrainConfig, WorkloadDefault
from equipoise.errors import EquipoiseError
from equipoise.planning.memory.memory_limit import parse_memory
from equipoise.planning.search import UNBOUNDED_LR, LrBounds
from equipoise.planning.sweep_budget import SweepBudget
from equipoise.registries.recipe_registry import DEFAULT_BASE_BATCH, ScalingRule
from equipoise.registries.sweep_recipes import Recipe, parse_recipes
from equipoise.storage.user_paths import parse_path_or_url
from jobs.cli.call_options import convert_option, list_values
from jobs.cli.paths import PathOrUrl
from jobs.ray_train.run import resolve_trial_paths
from jobs.ray_train.trackers import TrackerName
from jobs.ray_tune.confirmation import CONFIRMATION_SEED_OFFSET
from jobs.ray_tune.exchanges.exchange_option import AUTO, names_no_exchange, require_usable_exchanges
from jobs.ray_tune.sweep_subject import DEFAULT_WORKERS, find_worker_counts

T = TypeVar("T")

MAX_SEEDS = 1000

LeftOut = Annotated[T, tyro.conf.Fixed, tyro.conf.Suppress]
"""type of an option of training that a sweep does not take"""


@dataclass(frozen=True, kw_only=True)
class SharedTrainConfig(TrainConfig):
    """Options of training that all trials and the confirmation run share."""

    seed: int = 0
    """seed of the first trial of each setting; further trials use the following seeds"""
    workers: LeftOut[int] = 1  # a range of the sweep, as are batch size and learning rate
    batch_size: LeftOut[int] = 32
    lr: LeftOut[WorkloadDefault[float]] = FROM_WORKLOAD
    grad_accumulation: LeftOut[int] = 1  # lets one worker stand for all of them
    sync: LeftOut[str] = "step"  # ways of exchange are searched: `exchanges`
    compression: LeftOut[str] = "none"
    servers: LeftOut[int] = 0
    sharding: LeftOut[str] = "none"
    scaling_rule: LeftOut[ScalingRule] = "none"  # each batch gets the rate that is best for it, instead of a rule's
    base_batch: LeftOut[int] = DEFAULT_BASE_BATCH
    grow_batch: LeftOut[str] = "none"  # the curve of examples is that of batches that stay as they are
    keep: LeftOut[KeptWeights] = "last"  # trials keep no weights, and the confirmation run stops at its target
    target: LeftOut[float | None] = None  # several of them are one option of the sweep
    patience: LeftOut[int | None] = None  # the search ends hopeless trials, and step timing has no metric to improve


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep: of its own, and of training."""

    out: PathOrUrl
    """folder or URL for tables, records, plan.json and the confirmation run"""
    config: Annotated[SharedTrainConfig, tyro.conf.OmitArgPrefixes]
    workers: tuple[int, ...] = DEFAULT_WORKERS
    """numbers of workers to choose from"""
    batch_size: str = "8:512"
    """batch sizes per worker to choose from, MIN:MAX, in steps of a factor of 2"""
    lr: str | None = None
    """learning rate at a batch size of 32 to start the search from, or MIN:MAX to stay in, such as 0.01:0.5; by default
    0.05, or what suits the workload"""
    target: tuple[float, ...] = ()
    """validation metrics to plan for: trials and the confirmation run train to the hardest one, and show when they pass
    the others; by default the workload's own target"""
    budget_seconds: float = 120.0
    """seconds for timing steps (40 % at most) and for trials; then running trials are stopped, and the finished ones
    make the plan"""
    exhaustive: bool = False
    """try every global batch with five learning rates and all seeds, however long that takes"""
    seeds: int = 5
    """number of seeds for each setting of an exhaustive sweep"""
    trials: Literal["accumulated", "real"] = "accumulated"
    """one worker processes the parts of all workers in turn (accumulated), or a trial runs on all its workers (real)"""
    exchanges: tuple[str, ...] = (AUTO,)
    """other ways of exchange to consider beside exact sums in every step: names such as local:16, bf16, powersgd:4,
    server or async:4, auto for those that may pay on the links between several machines, or none; each is tried only
    where it could save time"""
    recipes: tuple[str, ...] = ()
    """recipes to compare with the plain options, such as lars:0.05, lamb, adamw, mixup:0.2, smoothing:0.1,
    average:0.98, clip:1, warmup:5 or one-cycle, or several in one as adamw+mixup:0.2: their trials take turns, and the
    plan is that of the fastest; other ways of exchange are not searched then"""
    memory: str | None = None
    """memory that a worker may use, such as 16GB or 512MiB: batch sizes that need more are not planned with, and where
    they would be the best, so are --sharding optimizer and full"""
    track: TrackerName | None = None
    """experiment tracker that also shows the trials"""

    def base_config(self) -> TrainConfig:
        """Build the options that all trials share; each trial replaces batch size, learning rate and seed."""
        target = self.target[0] if self.target else None  # the hardest one is known once the workload is loaded
        trial = TrainConfig(**asdict(self.config) | {"lr": self.initial_lr_and_bounds()[0], "target": target})
        return resolve_trial_paths(trial)

    def batches_per_worker(self) -> list[int]:
        """Return the batch sizes per worker, each twice the one before."""
        match = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})", self.batch_size)
        if not match:
            raise EquipoiseError("option-format", f"batch-size must be MIN:MAX such as 8:512, got {self.batch_size!r}")
        smallest, largest = int(match[1]), int(match[2])
        require_order("batch-size", self.batch_size, smallest, largest)
        return [smallest * 2**k for k in range(int(math.log2(largest / smallest)) + 1)]

    def batches_by_workers(self, num_examples: int | None) -> dict[int, list[int]]:
        """Return the batch sizes to time by number of workers, up to a global batch of all examples."""
        limit = num_examples or sys.maxsize
        batches_by_workers = {
            workers: [batch for batch in self.batches_per_worker() if workers * batch <= limit]
            for workers in sorted(set(find_worker_counts(self.config.command, self.workers)))
        }
        if not any(batches_by_workers.values()):
            raise EquipoiseError(
                "option-range",
                f"no --batch-size of {self.batch_size} fits the {limit} training examples",
                "choose smaller ones",
            )
        return {workers: batches for workers, batches in batches_by_workers.items() if batches}

    def initial_lr_and_bounds(self) -> tuple[float | None, LrBounds]:
        """Return the learning rate to start from, None if it is not given, and the bounds of the search."""
        if self.lr is None:
            return None, UNBOUNDED_LR
        try:
            numbers = [float(part) for part in self.lr.split(":")]
        except ValueError:
            numbers = []
        lowest, highest = UNBOUNDED_LR
        if len(numbers) == 2:
            require_order("lr", self.lr, *numbers)
        if len(numbers) == 1 and lowest <= numbers[0] <= highest:
            return numbers[0], UNBOUNDED_LR
        if len(numbers) == 2 and lowest <= numbers[0] <= numbers[1] <= highest:
            return math.sqrt(numbers[0] * numbers[1]), (numbers[0], numbers[1])
        raise EquipoiseError(
            "option-format",
            f"lr must be from {lowest:g} to {highest:g} such as 0.05, or MIN:MAX such as 0.01:0.5, got {self.lr!r}",
        )

    @property
    def memory_bytes(self) -> float | None:
        """Bytes of --memory; None if it is not given."""
        return None if self.memory is None else parse_memory("--memory", self.memory)

    @property
    def parsed_recipes(self) -> tuple[Recipe, ...]:
        """Recipes of --recipes, the plain one first; none if it is not given."""
        return parse_recipes(self.recipes) if self.recipes else ()

    @property
    def budget(self) -> SweepBudget:
        """Budget of the sweep; an exhaustive one has no limit."""
        return SweepBudget(seconds=math.inf if self.exhaustive else self.budget_seconds)

    def validate(self) -> None:
        """Refuse options that make no valid sweep."""
        if not self.workers or min(self.workers) < 1:
            raise EquipoiseError("option-range", f"workers must be numbers of at least 1, got {self.workers}")
        for workers in self.workers:
            replace(self.config, workers=workers)  # refuses an --all-reduce that so many cannot run
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise EquipoiseError("option-range", f"seeds must be from 1 to {MAX_SEEDS:,}, got {self.seeds}")
        last_seed = self.config.seed + CONFIRMATION_SEED_OFFSET + MAX_SEEDS
        replace(self.config, seed=last_seed)  # refuses one that is too large
        require_usable_exchanges(self.exchanges, max(self.workers), self.config.command)
        self._require_usable_recipes()
        if self.memory_bytes is not None and self.config.command is not None:
            raise EquipoiseError(
                "option-conflict",
                "cannot keep to --memory with a --command: what it takes is not known",
                "leave out --memory, or sweep a workload",
            )
        for value in self.target:
            replace(self.config, target=value)  # refuses one that is no finite number
        if not 0 < self.budget_seconds < math.inf:
            raise EquipoiseError(
                "option-range", f"budget-seconds must be a finite number above 0, got {self.budget_seconds}"
            )

    def _require_usable_recipes(self) -> None:
        """Refuse recipes that no trial could have, and options that a sweep over recipes does not take."""
        for recipe in self.parsed_recipes:
            replace(self.config, **recipe.options)  # type: ignore[arg-type]  # refuses values out of range
        conflicts = {
            "a --command: it trains in its own way": self.config.command is not None,
            "--exhaustive: recipes take turns in a search": self.exhaustive,
            "--memory: recipes keep different states of an optimizer": self.memory is not None,
            f"--exchanges {' '.join(self.exchanges)}: one of the two is searched": not names_no_exchange(
                self.exchanges
            ),
        }
        if self.recipes and (reasons := [reason for reason, is_used in conflicts.items() if is_used]):
            raise EquipoiseError("option-conflict", f"cannot use --recipes with {reasons[0]}", "omit one of the two")


def require_order(option: str, text: str, smallest: float, largest: float) -> None:
    """Refuse a range MIN:MAX whose first number is the larger one."""
    if smallest > largest:
        first, second = text.split(":")
        raise EquipoiseError(
            "option-format",
            f"cannot use {option} {text}: its first number is larger than its second",
            f"give {second}:{first}",
        )


def build_sweep_options(
    workload: str, out: str | Path, workers: Sequence[int], options: Mapping[str, Any]
) -> SweepOptions:
    """Build the options of a sweep of a workload from those that the command takes too, by their names."""
    own_names = {field.name for field in fields(SweepOptions)} - {"config", "out", "workers"}
    left_out = {
        *("workload", "command", "metric_pattern", "examples_pattern", "grad_accumulation", "keep", "patience"),
        *("sync", "compression", "servers", "sharding", "scaling_rule", "base_batch", "grow_batch"),
    }
    config_names = {field.name for field in fields(TrainConfig)} - own_names - left_out - {"workers"}
    if unknown := sorted(options.keys() - own_names - config_names):
        raise EquipoiseError(
            "option-unknown",
            f"a sweep of a function has no option {unknown[0]!r}",
            f"choose from: {', '.join(sorted(own_names | config_names))}",
        )
    values = {name: value for name, value in options.items() if name != "target" or value is not None}
    if isinstance(lr := values.get("lr"), int | float):
        values["lr"] = str(lr)  # a text, because it may be a range
    if "target" in values:
        values["target"] = list_values(values["target"])
    if "exchanges" in values:
        names = values["exchanges"]
        values["exchanges"] = [names] if isinstance(names, str) else list_values(names)
    kinds = get_type_hints(SharedTrainConfig) | get_type_hints(SweepOptions)
    if isinstance(values.get("recipes"), str):
        values["recipes"] = [values["recipes"]]
    converted = {name: convert_option(name, value, kinds[name]) for name, value in values.items()}
    return SweepOptions(
        config=SharedTrainConfig(workload=workload, **{name: converted[name] for name in values.keys() & config_names}),
        out=parse_path_or_url(convert_option("out", out, str)),
        workers=convert_option("workers", list_values(workers), kinds["workers"]),
        **{name: converted[name] for name in values.keys() & own_names},
    )
