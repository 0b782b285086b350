"""Find the engine that predicts fastest on this machine, among those that agree with eager PyTorch."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from equipoise.bundle.engine_results import EngineResult
from equipoise.bundle.engines import Engine
from equipoise.errors import EquipoiseError

BENCHMARK_BATCH_SIZES = (1, 8)
ENGINE_TIMING_ROUNDS = 7
MIN_TURN_SECONDS = 0.02  # length of one engine's turn in a round
MAX_RELATIVE_ERROR = 1e-5  # difference from eager fp32, relative to the largest value of the same output
BASELINE_ENGINE = "eager"

OutputComparison = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[float, bool]]
"""maps (expected outputs, outputs of an engine) to the largest relative error, and to whether they agree"""


def compare_values(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
    """Return the largest relative error of any output, and whether it is only rounding."""
    error = max(measure_relative_error(output, reference) for output, reference in zip(outputs, expected, strict=True))
    return error, error <= MAX_RELATIVE_ERROR


def compare_classes(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
    """Return the largest relative error of any output, and whether it is only rounding and the classes are the same."""
    error, is_rounding = compare_values(expected, outputs)
    return error, is_rounding and bool((outputs[0].argmax(1) == expected[0].argmax(1)).all())


def measure_relative_error(output: Tensor, expected: Tensor) -> float:
    """Return the largest difference of an output from the one expected, relative to the largest expected value."""
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def benchmark_engines(
    engine_factories: Mapping[str, Callable[[], Engine]],
    original_model: Engine,
    inputs: Sequence[Tensor],
    compare: OutputComparison = compare_classes,
) -> list[EngineResult]:
    """Compare every engine with `original_model` on all examples, then time the engines in turns on one thread."""
    previous_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        engines, failed = {}, []
        for name, factory in engine_factories.items():
            try:
                engines[name] = factory()
            except Exception as error:  # an engine may raise anything; the others are still compared
                reason = f"{type(error).__name__}: {str(error).strip()[:200]}"
                failed.append(EngineResult(name, None, None, False, reason))
        expected = compute_outputs(original_model, inputs)
        compared = [
            EngineResult(name, None, *compare(expected, compute_outputs(engine, inputs)))
            for name, engine in engines.items()
        ]
        seconds = time_engines(engines, inputs)
        return [replace(result, seconds=seconds[result.engine]) for result in compared] + failed
    finally:
        torch.set_num_threads(previous_threads)


def compute_outputs(engine: Engine, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs for all examples, computed 64 at a time."""
    parts = [engine(*batch) for batch in zip(*(tensor.split(64) for tensor in inputs), strict=True)]
    return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]


def time_engines(engines: Mapping[str, Engine], inputs: Sequence[Tensor]) -> dict[str, dict[int, float]]:
    """Return median seconds per call by engine and batch size.

    The engines take turns, so that a slow moment of the machine affects all of them.
    """
    medians: dict[str, dict[int, float]] = {name: {} for name in engines}
    for batch_size in BENCHMARK_BATCH_SIZES:
        batch = [tensor[torch.arange(batch_size) % len(tensor)] for tensor in inputs]
        calls = {
            name: max(1, round(MIN_TURN_SECONDS / measure_seconds_per_call(engine, batch, 2)))
            for name, engine in engines.items()
        }
        turns = [
            {name: measure_seconds_per_call(engine, batch, calls[name]) for name, engine in engines.items()}
            for _ in range(ENGINE_TIMING_ROUNDS)
        ]
        for name in engines:
            medians[name][batch_size] = statistics.median(turn[name] for turn in turns)
    return medians


def measure_seconds_per_call(engine: Engine, inputs: Sequence[Tensor], calls: int) -> float:
    """Return the mean seconds per call over `calls` calls."""
    start = time.perf_counter()
    for _ in range(calls):
        engine(*inputs)
    return (time.perf_counter() - start) / calls


def describe_disagreement(result: EngineResult) -> str:
    """Return in words why an engine does not agree with eager PyTorch."""
    if result.why_not or result.error is None:
        return result.why_not
    if result.error <= MAX_RELATIVE_ERROR:
        return "other classes or boxes, with scores that differ by rounding alone"
    return f"a relative error of {result.error:.2g}, where at most {MAX_RELATIVE_ERROR:g} is rounding"


def select_engine(results: list[EngineResult]) -> tuple[str, str]:
    """Return the engine to use and why: the fastest that agrees with eager and is never slower at any batch size."""
    times = {result.engine: result.seconds for result in results if result.seconds and result.agrees}
    if BASELINE_ENGINE not in times:
        [eager] = [result for result in results if result.engine == BASELINE_ENGINE]
        raise EquipoiseError(
            "export-failed",
            f"cannot publish the model: its exported program does not predict what the model predicts "
            f"({describe_disagreement(eager)})",
        )
    baseline = times[BASELINE_ENGINE]
    candidates = {
        name: seconds
        for name, seconds in times.items()
        if all(seconds[batch_size] <= baseline[batch_size] for batch_size in BENCHMARK_BATCH_SIZES)
    }
    best = min(candidates, key=lambda name: statistics.geometric_mean(candidates[name].values()))
    if best == BASELINE_ENGINE:
        return best, "no other engine that agrees with it is as fast at every batch size"
    ratios = " and ".join(
        f"{candidates[best][batch_size] / baseline[batch_size]:.2f} at batch {batch_size}"
        for batch_size in BENCHMARK_BATCH_SIZES
    )
    return best, f"it takes {ratios} of eager's time, and its predictions agree with eager's"
