"""Time the training steps of one worker at several batch sizes, under the same conditions as in training."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch

from equipoise.config import TrainConfig
from equipoise.number_bounds import MIN_LEARNING_RATE
from equipoise.planning.memory.largest_batch import predict_peak
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.parameter_servers.worker_speeds import are_unequal
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.runs.record import Lap
from equipoise.training.comm_benchmark import MESSAGE_BYTES, time_all_reduces, time_send_recv
from equipoise.training.gradient_sync import uses_all_to_all
from equipoise.training.loop import Training
from equipoise.training.memory.fit_batch import find_device_memory
from equipoise.training.memory.measure_sizes import measure_model_sizes
from equipoise.workloads import Workload
from jobs.timing.timing_records import ExchangeTiming, StepTiming
from jobs.timing.timing_schedule import MIN_STRETCH_SECONDS, StepProbe

EVALUATED_EXAMPLES = 256  # evaluated between laps as in training, which leaves the caches in the same state
MAX_EVALUATION_SECONDS = 0.05  # fewer examples are evaluated where they take longer: the caches are full anyway
SHORT_STEP_SECONDS, SHORT_STEPS = 0.02, 5  # shorter steps are probed several at a time: their batches are loaded so
ASYNCHRONOUS_LAP_FACTOR = 6  # times the seconds of other laps
MAX_STRETCH_LAPS = 10_000  # more than fit in a stretch
MICROSECONDS = 1e6  # integers are agreed upon by all workers


class StepBench:
    """Timer of the steps of one worker at any batch size; all workers of a group call the same methods."""

    def __init__(self, trial: TrainConfig, workload: Workload, device: torch.device, started_at: float) -> None:
        # with the smallest learning rate the weights hardly move and the loss stays finite
        self.trial = replace(trial, lr=MIN_LEARNING_RATE, target=None)
        self.device = device
        self.workload = replace(workload, target=None)  # steps are timed, whatever the metric
        self.started_at = started_at
        self._limit_evaluation(1)
        self.free_bytes = find_device_memory(device)  # before allocators keep what they once had
        self.measured_peaks: dict[int, int] = {}
        """largest number of bytes in a worker's tensors by batch size"""
        self.chosen_algorithms: tuple[AppliedAllReduce, ...] = ()  # by --all-reduce auto, once for all trainings
        self.idle_training = self._build_training(1, 1)
        self.idle_training.prepare_all_reduce()
        self.chosen_algorithms = self.idle_training.gradient_sync.algorithms
        self.probes: dict[int, StepProbe] = {}

    @property
    def gradient_bytes(self) -> int:
        """Size in bytes of the gradient of all trainable parameters."""
        return sum(parameter.nbytes for parameter in self.idle_training.trainable_parameters)

    def elapsed_seconds(self) -> float:
        """Return the seconds since all workers have their data, by the slowest clock."""
        return self._max_seconds(time.monotonic() - self.started_at)

    def max_over_workers(self, value: int) -> int:
        """Return the largest `value` of any worker."""
        return self.idle_training.all_reduce_max(value)

    def probe(self, batch: int) -> StepProbe | None:
        """Take a few steps at a batch size and return how long they took; None if it does not fit in memory."""
        if not self.is_predicted_to_fit(batch):
            return None
        start = time.monotonic()
        training = self._build_training(batch, 1)
        setup_seconds = self._max_seconds(time.monotonic() - start)
        if not training.fits_in_memory():
            return None
        if not self.probes:  # the first pass of a process takes longer than others
            start = time.monotonic()
            training.fits_in_memory()
            self._limit_evaluation(int(MAX_EVALUATION_SECONDS * batch / self._max_seconds(time.monotonic() - start)))
        probe = self._time_second_lap(batch, 1, setup_seconds)
        if probe.step_seconds < SHORT_STEP_SECONDS:
            probe = self._time_second_lap(batch, SHORT_STEPS, setup_seconds)
        self.probes[batch] = probe
        return probe

    @cached_property
    def sizes(self) -> ModelSizes:
        """Sizes of the model, measured when a batch is first predicted."""
        return measure_model_sizes(self.trial, self.workload, self.device)

    def is_predicted_to_fit(self, batch: int) -> bool:
        """Return whether a batch is expected to fit, where smaller ones were measured.

        A try that does not fit may end the process: where a container has a limit, the kernel does not ask.
        """
        exceeds = False
        if self.measured_peaks and batch > max(self.measured_peaks):
            trial, has_gpu = replace(self.trial, batch_size=batch), self.device.type == "cuda"
            exceeds = (
                predict_peak(self.sizes, trial, self.measured_peaks, has_gpu=has_gpu)
                > self.free_bytes - self._allocated_bytes()
            )
        return not self.max_over_workers(int(exceeds))

    def time_stretch(self, batch: int) -> list[Lap]:
        """Train a stretch of laps at a batch size, after a lap in which allocators and kernels warm up."""
        training = self._build_training(batch, self._lap_steps(batch))
        laps: list[Lap] = []
        for lap in islice(training.laps(), 1, None):
            laps.append(lap)
            if not training.all_reduce_max(int(sum(lap.seconds for lap in laps) < MIN_STRETCH_SECONDS)):
                break
        return laps

    def start_laps(self, batch: int, lap_seconds: float) -> Iterator[Lap] | None:
        """Return the laps of a training at a batch size, after one in which allocators and kernels warm up.

        They have as many steps as take `lap_seconds` with exact sums, and at least those from one exchange to the next.
        Asynchronous ones are longer, up to those between two evaluations: workers wait for each other at their ends.
        Return None if it does not fit in memory.
        """
        if self.trial.sync_method.kind == "async":
            lap_seconds *= ASYNCHRONOUS_LAP_FACTOR
        lap_steps = max(1, round(lap_seconds / self.probes[batch].step_seconds))
        if self.trial.sync_method.kind == "async":
            lap_steps = min(lap_steps, self._steps_between_evaluations(batch))
        others = self._allocated_bytes()
        training = self._build_training(batch, lap_steps)
        if not training.fits_in_memory():
            return None
        laps = training.laps()
        self._note_peak(batch, next(laps), others)
        return laps

    def time_exchanges(self, nodes: int, seconds: float) -> list[ExchangeTiming]:
        """Time exchanges alone, for about `seconds`, by the algorithm that sums most of the gradient.

        Return none for one worker or gradients so small that one all-to-all sums them.
        """
        workers = self.trial.workers
        if workers == 1 or uses_all_to_all(self.gradient_bytes, workers, self.device):
            return []
        message = ExchangeTiming(
            nodes=nodes, workers=workers, kind="message", bytes=MESSAGE_BYTES, seconds=time_send_recv(self.device)
        )
        sums = time_all_reduces(self.gradient_bytes, self.device, seconds, self._largest_bucket_algorithm())
        return [message, *(replace(message, kind="sum", bytes=size, seconds=took) for size, took in sums.items())]

    def _largest_bucket_algorithm(self) -> AppliedAllReduce:
        """Return the algorithm of the largest bucket: one for all sizes, so that one delay and one rate fit them."""
        sync = self.idle_training.gradient_sync
        if not sync.algorithms:  # what is encoded has an exchange of its own
            return "backend"
        sizes = [bucket.flat_gradients.nbytes for bucket in sync.buckets]
        return sync.algorithms[sizes.index(max(sizes))]

    def _time_second_lap(self, batch: int, lap_steps: int, setup_seconds: float) -> StepProbe:
        """Train two laps, and return what the second one took."""
        others = self._allocated_bytes()
        laps = self._build_training(batch, lap_steps).laps()
        self._note_peak(batch, next(laps), others)
        start = time.monotonic()
        lap = next(laps)
        evaluation_seconds = time.monotonic() - start - lap.seconds
        return StepProbe(
            step_seconds=self._max_seconds(lap.seconds / lap.steps),
            exchange_seconds=self._max_seconds(min(lap.exchange_seconds or 0.0, lap.seconds) / lap.steps),
            evaluation_seconds=self._max_seconds(evaluation_seconds),
            setup_seconds=setup_seconds,
        )

    def _allocated_bytes(self) -> int:
        """Return the bytes on a GPU of other trainings of this process, which its allocator counts too; 0 on a CPU."""
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def _note_peak(self, batch: int, lap: Lap, others: int) -> None:
        """Keep the peak of the first lap of a training, without the bytes of `others`."""
        if lap.peak_bytes:
            self.measured_peaks[batch] = lap.peak_bytes - others

    def _lap_steps(self, batch: int) -> int:
        """Return the number of steps of a lap: as in training, where an evaluation ends it."""
        return min(self.probes[batch].lap_steps, self._steps_between_evaluations(batch))

    def _steps_between_evaluations(self, batch: int) -> int:
        """Return the number of steps from one evaluation to the next in training."""
        return -(-self.workload.eval_interval(self.trial) // (batch * self.trial.workers))

    def _limit_evaluation(self, examples: int) -> None:
        """Evaluate this many examples between laps, within bounds."""
        examples = max(self.trial.workers, min(EVALUATED_EXAMPLES, examples))
        self.evaluated_workload = replace(self.workload, validation=self.workload.validation.take_first(examples))

    def _max_seconds(self, seconds: float) -> float:
        """Return the longest time of any worker, at least a microsecond."""
        return max(1, self.max_over_workers(round(seconds * MICROSECONDS))) / MICROSECONDS

    def _build_training(self, batch: int, lap_steps: int) -> Training:
        lap_examples = lap_steps * batch * self.trial.workers
        max_examples = MAX_STRETCH_LAPS * lap_examples
        trial = replace(self.trial, batch_size=batch, eval_every=lap_examples, max_examples=max_examples)
        training = Training(trial, self.evaluated_workload, self.device)
        if trial.all_reduce == "auto" and self.chosen_algorithms:
            training.gradient_sync.set_algorithms(self.chosen_algorithms)
        return training


def summarize_stretches(bench: StepBench, nodes: int, batch: int, stretches: list[list[Lap]]) -> StepTiming:
    """Summarize the stretches of one batch size by their medians."""

    def seconds_per_step(name: str) -> list[float]:
        return [sum(getattr(lap, name) for lap in laps) / sum(lap.steps for lap in laps) for laps in stretches]

    return StepTiming(
        nodes=nodes,
        workers=bench.trial.workers,
        batch=batch,
        seconds=statistics.median(seconds_per_step("seconds")),
        data_seconds=statistics.median(seconds_per_step("data_seconds")),
        exchange_seconds=statistics.median(seconds_per_step("exchange_seconds")),
        pace_sd=float(np.std(np.log(seconds_per_step("seconds")), ddof=1)),
        gradient_bytes=bench.gradient_bytes,
        peak_bytes=bench.measured_peaks.get(batch),
        read_ahead=not bench.workload.train.is_in_memory,
        joules=summarize_joules(bench.trial, stretches),
        seconds_by_worker=summarize_seconds_by_worker(stretches),
    )


def summarize_joules(trial: TrainConfig, stretches: list[list[Lap]]) -> float | None:
    """Return the median joules of a step; None where they are not measured in all laps, or only assumed."""
    if trial.watts is not None or any(lap.joules is None for laps in stretches for lap in laps):
        return None
    per_step = [sum(lap.joules or 0.0 for lap in laps) / sum(lap.steps for lap in laps) for laps in stretches]
    return statistics.median(per_step)


def summarize_seconds_by_worker(stretches: list[list[Lap]]) -> tuple[float, ...]:
    """Return the median seconds that each worker computes in a step; nothing where workers are equal."""
    per_stretch = [
        np.sum([lap.seconds_by_worker or [lap.compute_seconds or 0.0] * lap.workers for lap in laps], axis=0)
        / sum(lap.steps for lap in laps)
        for laps in stretches
    ]
    seconds = tuple(np.median(per_stretch, axis=0).tolist())
    return seconds if are_unequal(seconds) else ()
