"""Observer of a training loop, which measures it through hooks and writes the files of a training run."""

import atexit
import logging
import math
import sys
import warnings
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from platform import node
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.observation.loop_hooks import LoopHooks
from equipoise.observation.loop_setup import (
    build_observed_config,
    claim_model,
    list_trainable_parameters,
    release_model,
    unwrap_optimizer,
)
from equipoise.observation.norm_probe import NormProbe, Stopwatch
from equipoise.observation.observed_run import ObservedRun, build_record
from equipoise.observation.profiling.loop_profile import LoopProfile
from equipoise.observation.step_clock import StepClock
from equipoise.observation.step_sampling import MeasurementCadence
from equipoise.observation.summary import format_observation
from equipoise.observation.worker_group import WorkerGroup
from equipoise.observation.worker_lap import NO_DRAW, WorkerLap, build_lap, count_hosts
from equipoise.runs.record import Lap, Record, mean_noise_scale
from equipoise.storage.user_paths import require_local_paths

logger = logging.getLogger(__name__)


def observe(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    batch_size: int,
    out: str | Path,
    name: str | None = None,
    target: float | None = None,
    lower_is_better: bool = False,
    seed: int = 0,
    noise_scale_every: int | None = None,
    lap_steps: int | None = None,
    parts_every: int | None = None,
    profile_steps: int = 0,
) -> "Observer":
    """Observe a training loop that you keep as it is: where the time of its steps goes, and its gradient noise scale.

    Give the module that the loop calls, also where it is a DistributedDataParallel, and the optimizer that ends a step;
    those that Accelerate has prepared are taken too. With several workers, call this function, `report` and `close` on
    each of them. Forward passes in evaluation mode or without gradients are not counted, nor is the time around them,
    from the last step to the next forward pass of training.

    `batch_size` is the number of examples of a forward pass on one worker; a smaller last batch counts as a full one.
    `out` is a new folder for the record, the laps and the row of system.csv. `name` is that of the run, `target` the
    metric to be reached. `lap_steps` steps are timed as one: a hundred, or more if they take less than 0.5 s.
    Computing and exchange are told apart in one of `parts_every` steps (1: in each), which stand for the others: five,
    or more where steps are short. The noise scale is measured once in `noise_scale_every` steps (0: never): ten, or
    more where measuring takes long.
    `profile_steps` steps after the first lap are traced for a profile (0: none), behind sixty that are timed by part.
    """
    options = {"target": target, "lower_is_better": lower_is_better, "seed": seed, "batch_size": batch_size}
    cadence = MeasurementCadence(lap_steps, parts_every, noise_scale_every, profile_steps)
    return Observer(model, optimizer, out, name, options, cadence)


class Observer:
    """Observer of a training loop, from `equipoise.observe`; as a context manager it closes itself.

    Attributes:
        laps: laps that have ended
        noise_scale_reason: why the last lap has no noise scale; None if it has one
        record: record of the run once the observer is closed; None before
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        out: str | Path,
        name: str | None,
        options: dict[str, Any],
        cadence: MeasurementCadence,
        follow_forward: bool = True,
    ) -> None:
        """Observe a loop; without `follow_forward` the caller says when a forward pass starts, and what it returns."""
        self.model, self.optimizer, self.cadence = model, unwrap_optimizer(optimizer), cadence
        self.parameters = list_trainable_parameters(model, self.optimizer)
        self.device = self.parameters[0].device
        require_local_paths({"out": out})
        claim_model(model)
        try:
            self.workers = WorkerGroup()
            options = options | {"workers": self.workers.size, "noise_scale_every": cadence.first_norm_interval}
            self.config = build_observed_config(model, self.optimizer, name, **options)
            self.run = ObservedRun(Path(out), self.config) if self.workers.rank == 0 else None
        except BaseException:
            release_model(model)
            raise
        self.laps: list[Lap] = []
        self.noise_scale_reason: str | None = NO_DRAW
        self.record: Record | None = None
        self.lap_start, self.end_stopwatch = 0, Stopwatch()
        self.losses: list[Tensor] = []
        self.nodes = 1
        self.profile = LoopProfile(cadence.profile_steps)
        self.lap_steps = cadence.choose_lap_steps()
        self.clock = StepClock(self.device, self.workers.size > 1, cadence.choose_parts_every())
        self.probe = NormProbe(self.parameters, self.workers.size, self.config.noise_scale_every)
        self.hooks = LoopHooks(model, self.optimizer, self.clock, self.probe, self._finish_step, follow_forward)
        atexit.register(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abandon(error)

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far."""
        return self.clock.steps

    @property
    def noise_scale(self) -> float | None:
        """Gradient noise scale in examples over all laps; None where it was not measured or noise hides it."""
        return mean_noise_scale(self.laps)

    @property
    def summary(self) -> str:
        """Two lines of text: where the time of a step went, and the noise scale or why there is none."""
        return format_observation(self.laps, self.noise_scale_reason)

    def report(self, metric: float | Tensor) -> None:
        """Record a metric of the weights as they are, such as a validation accuracy; on every worker.

        Once the observer is closed this changes nothing: the record has been written.
        """
        if self.record is not None:
            return
        value = float(metric) if math.isfinite(metric) else None
        if value is None:
            warn_of_problem(f"a metric of {float(metric)} at step {self.steps} is left out")
        if self.steps > self.lap_start:
            self._end_lap(value)
        elif self.laps:
            self.laps[-1] = replace(self.laps[-1], metric=value)
            if self.run:
                self.run.rewrite_laps(self.laps, self.config)
        self.pause()

    def add_loss(self, loss: Tensor) -> None:
        """Add the training loss of a micro-batch, for the mean of the lap; it is not read before the lap ends."""
        if self.record is None:
            self.losses.append(loss.detach())

    def pause(self) -> None:
        """Stop the clock until the next forward pass, where something else than training follows a step."""
        self.hooks.pause()

    def close(self) -> Record:
        """End the observation on every worker, write its files and return its record; a second call changes nothing."""
        if self.record is None:
            self._detach()
            if self.steps > self.lap_start:
                self._end_lap()
            self.profile.warn_if_missing()
            self.record = self._write_record()
        return self.record

    def abandon(self, error: BaseException | None) -> None:
        """End the observation without the other workers, because the loop failed or the program ends."""
        if self.record is not None:
            return
        self._detach()
        self.workers.leave()
        with suppress(RuntimeError):  # of a device that has failed
            if self.steps > self.lap_start:
                self._end_lap()
        failure = f"{type(error).__name__}: {first_error_line(error)}" if error else None
        try:
            self.record = self._write_record(failure)
        except (OSError, EquipoiseError) as problem:  # the error of the loop is the one to be seen
            warn_of_problem(str(problem))

    def _finish_step(self, micro_batches: int) -> int:
        """End the lap if it is long enough, and return the steps until the next one ends."""
        if self.steps == 1:
            self.config = replace(self.config, grad_accumulation=micro_batches)
            self.probe.micro_batches = micro_batches
        if self.steps - self.lap_start >= self.lap_steps:
            with self.end_stopwatch:
                self._end_lap()
            self.clock.skip_to_now()
        if self.profile.state == "to begin" and self.laps:
            self.hooks.profiler = self.profile.begin(
                self.model, self.optimizer, self.device, self.workers.size, self.config.batch_size
            )
        return self.lap_start + self.lap_steps - self.steps

    def _end_lap(self, metric: float | None = None) -> None:
        """End the lap of all workers at the last step, and write it."""
        rows = [WorkerLap(*values) for values in self.workers.gather_rows(self._measure_lap())]
        steps, lr = self.steps - self.lap_start, float(self.optimizer.param_groups[0]["lr"])
        lap, self.noise_scale_reason = build_lap(rows, self.config, steps, self.steps, lr, metric)
        self.nodes, self.lap_start = max(self.nodes, count_hosts(rows)), self.steps
        self.profile.note_lap(len(self.laps))
        self.laps.append(lap)
        self._choose_cadence(rows, lap.seconds / steps)
        if self.run:
            self.run.append_lap(lap)
        if all(row.profile_state for row in rows):
            if all(row.profile_state > 0 for row in rows):
                self.profile.write(self.run, self.workers, self.config, self.nodes, self.device)
            self.profile.profiler = self.hooks.profiler = None

    def _choose_cadence(self, rows: list[WorkerLap], step_seconds: float) -> None:
        """Choose the steps that are measured from here on, by what all workers know, since they measure the same."""
        if self.profile.state in ("none", "written"):  # a profile has its steps, and ends with a lap
            end_seconds = min(row.end_seconds for row in rows)  # of the worker that did not wait for others
            self.lap_steps = self.cadence.choose_lap_steps(step_seconds, end_seconds)
            self.clock.sampling.every = self.cadence.choose_parts_every(step_seconds, self.clock.has_exchange)
        if norm_seconds := max(row.norm_seconds for row in rows):
            self.probe.every = self.cadence.choose_norm_interval(norm_seconds, step_seconds)

    def _measure_lap(self) -> WorkerLap:
        """Return what this worker has measured since the last lap, and start anew."""
        seconds, (local, total, draws) = self.clock.pop_seconds(), self.probe.norms.pop_sums()
        losses = float(torch.stack(self.losses).double().sum()) if self.losses else 0.0
        num_losses = len(self.losses)
        self.losses.clear()
        return WorkerLap(
            data_seconds=seconds.get("data", 0.0),
            compute_seconds=seconds.get("compute", 0.0),
            exchange_seconds=seconds.get("exchange", 0.0),
            local_norms=local,
            total_norms=total,
            draws=draws,
            norm_seconds=self.probe.pop_step_seconds(),
            end_seconds=self.end_stopwatch.pop_seconds(),
            losses=losses,
            num_losses=num_losses,
            host=zlib.crc32(node().encode()),
            profile_state=self.profile.progress,
        )

    def _write_record(self, failure: str | None = None) -> Record:
        """Build the record, write the files of the run on the first worker, and return the record."""
        record = build_record(self.config, self.device, self.laps, failure, self.hooks.unseen_steps)
        if self.run:
            if self.noise_scale_reason:
                logger.info("noise scale left out: %s", self.noise_scale_reason)
            try:
                gradient_bytes = sum(parameter.nbytes for parameter in self.parameters)
                self.run.write_results(record, self.nodes, gradient_bytes, self.profile.laps)
            finally:
                self.run.release()
        return record

    def _detach(self) -> None:
        self.hooks.remove()
        release_model(self.model)
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """Write what was measured when the program ends without having closed its observer."""
        self.abandon(getattr(sys, "last_value", None))


def warn_of_problem(problem: str) -> None:
    """Warn of a problem of the observation, which must not end the training."""
    warnings.warn(f"equipoise.observe: {problem}", RuntimeWarning, stacklevel=3)
