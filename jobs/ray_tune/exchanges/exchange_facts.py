"""What a sweep knows of other ways of exchange beside its tables: shapes of gradients, and what was timed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, prod
from statistics import fmean

import numpy as np
from torch import nn

from equipoise.config import TrainConfig
from equipoise.planning.exchange_choice.exchange_costs import (
    MOMENTS_BY_OPTIMIZER,
    SECOND_MOMENTS_BY_OPTIMIZER,
    ExchangeCosts,
    MatrixFacts,
)
from equipoise.planning.exchange_choice.store_costs import StoreFacts
from equipoise.planning.exchanges.compression_cost import GradientShapes
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.sharding.sharding_verdicts import SHARDINGS
from equipoise.planning.sharding.worker_limit import WorkerLimit
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings
from equipoise.training.dataloader import PARAMETER_DTYPES
from equipoise.training.finetune import freeze_stages
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.workloads import Workload
from jobs.timing.exchange_step_timing import ExchangeStepTiming, ExchangeTimings

DEFAULT_RANK = 4  # of powersgd, for which the shapes of gradients are summed up


@dataclass(frozen=True, kw_only=True)
class ExchangeFacts:
    """Facts by which other ways of exchange are predicted from step times with exact sums."""

    candidates: tuple[str, ...]
    """ways of exchange to consider"""
    gradient_shapes: tuple[tuple[int, ...], ...] = ()
    """shapes of the gradients of all trainable parameters"""
    number_bytes: int = 4
    """bytes of a number of a gradient"""
    state_copies: float = 2.0
    """bytes that workers average over those of the gradient: weights, and each moment of the optimizer"""
    exact_copies: float = 0.0
    """those of `state_copies` that compression leaves as they are: second moments of the optimizer"""
    momentum: float = 0.0
    """momentum of SGD; 0 for other optimizers"""
    timings: ExchangeTimings = field(default_factory=ExchangeTimings)
    """what was measured of them"""
    memory: WorkerLimit | None = None
    """limit of a worker's memory; None for no limit"""

    @property
    def shardings(self) -> tuple[str, ...]:
        """Shardings to judge: those among the candidates, and where there is a limit those of every sweep."""
        own = [name for name in self.candidates if parse_exchange(name).sharding != "none"]
        return tuple(dict.fromkeys([*own, *SHARDINGS])) if self.memory else ()

    def build_costs(
        self, fit: StepTimeFit, seconds_by_worker: Mapping[int, Mapping[int, tuple[float, ...]]] | None = None
    ) -> ExchangeCosts:
        """Build the closed forms of step times, corrected by the steps that were timed.

        `seconds_by_worker` has those of unequal workers, by their number and the batch.
        """
        key_bytes = tuple(float(prod(shape) * self.number_bytes) for shape in self.gradient_shapes)
        costs = ExchangeCosts(
            fit=fit,
            state_copies=self.state_copies,
            exact_copies=self.exact_copies,
            encode_seconds=self.timings.encode_seconds,
            matrices=self.find_matrices(),
            store=StoreFacts(key_bytes=key_bytes, seconds_by_worker=seconds_by_worker or {}),
        )
        ratios: dict[str, list[float]] = {}
        for row in self.timings.steps:
            predicted = float(costs.step_seconds(row.exchange, step_settings(row))[0])
            ratios.setdefault(row.exchange, []).append(seconds_in_table(fit, row) / predicted)
        step_ratios = {name: exp(fmean(map(log, values))) for name, values in ratios.items()}
        return replace(costs, step_ratios=step_ratios)

    def find_matrices(self) -> MatrixFacts | None:
        """Return the sizes of the matrices that powersgd shortens; None where the shapes are not known."""
        if not self.gradient_shapes:
            return None
        shapes = GradientShapes.from_shapes(self.gradient_shapes, self.number_bytes)
        p, q, exact = shapes.count_low_rank_numbers(DEFAULT_RANK)
        return MatrixFacts((p + q) // DEFAULT_RANK, float(exact * self.number_bytes))


def step_settings(row: ExchangeStepTiming) -> StepSettings:
    """Return the setting of a timing, as arrays."""
    return StepSettings(*(np.array([value], float) for value in (row.nodes, row.workers, row.batch)))


def seconds_in_table(fit: StepTimeFit, row: ExchangeStepTiming) -> float:
    """Return the seconds of a step beside those with exact sums in the table, whatever the pace when it was timed."""
    return row.ratio * float(fit.shrunk_seconds(step_settings(row))[0])


def find_gradient_shapes(config: TrainConfig, workload: Workload) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the gradients of a run."""
    model: nn.Module = build_initial_model(config, workload).model
    freeze_stages(model, config.freeze_stages)
    return tuple(tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad)


def build_exchange_facts(
    config: TrainConfig, gradient_shapes: Sequence[tuple[int, ...]], candidates: Sequence[str], timings: ExchangeTimings
) -> ExchangeFacts:
    """Build the facts of a run with these options."""
    moments = MOMENTS_BY_OPTIMIZER.get(str(config.optimizer), 2)
    if config.optimizer == "sgd" and not config.momentum:
        moments = 0
    return ExchangeFacts(
        candidates=tuple(candidates),
        gradient_shapes=tuple(gradient_shapes),
        number_bytes=PARAMETER_DTYPES[config.precision].itemsize,
        state_copies=1.0 + moments,
        exact_copies=float(SECOND_MOMENTS_BY_OPTIMIZER.get(str(config.optimizer), 0)),
        momentum=config.momentum if config.optimizer == "sgd" else 0.0,
        timings=timings,
    )
