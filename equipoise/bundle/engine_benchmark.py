"""Which engine answers fastest on this machine, of those that answer the same."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from equipoise.bundle.engines import Engine

BENCHMARK_BATCH_SIZES = (1, 8)
ENGINE_TIMING_ROUNDS = 7
MIN_TURN_SECONDS = 0.02  # of one engine's turn in a round
MAX_RELATIVE_ERROR = 1e-5  # to eager fp32, relative to its largest score
BASELINE_ENGINE = "eager"


@dataclass(frozen=True)
class EngineResult:
    """One engine: how near to eager it answers, and how long it takes."""

    engine: str
    seconds: dict[int, float] | None
    """median of a call, by batch; None if it does not run here"""
    error: float | None
    """largest difference of a score from eager's, relative to eager's largest"""
    agrees: bool
    """whether every label is eager's, and every score close"""
    why_not: str = ""


def benchmark_engines(
    engine_factories: Mapping[str, Callable[[], Engine]], original_model: Engine, pictures: Tensor
) -> list[EngineResult]:
    """Every engine compared with `truth` on all `pictures`, then timed in turns on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        running, refused = {}, []
        for name, maker in engine_factories.items():
            try:
                running[name] = maker()
            except Exception as error:  # whatever an engine raises, the others go on
                refused.append(
                    EngineResult(name, None, None, False, f"{type(error).__name__}: {str(error).strip()[:200]}")
                )
        expected = predict_logits(original_model, pictures)
        found = [compare_outputs(name, engine, expected, pictures) for name, engine in running.items()]
        seconds = time_engines(running, pictures)
        return [EngineResult(one.engine, seconds[one.engine], one.error, one.agrees) for one in found] + refused
    finally:
        torch.set_num_threads(before)


def predict_logits(engine: Engine, pictures: Tensor) -> Tensor:
    """Scores before softmax of all pictures."""
    return torch.cat([engine(part)[0] for part in pictures.split(64)])


def compare_outputs(engine_name: str, engine: Engine, expected_logits: Tensor, pictures: Tensor) -> EngineResult:
    """How near an engine's answers are."""
    logits = predict_logits(engine, pictures)
    error = float((logits - expected_logits).abs().max() / expected_logits.abs().max().clamp(min=1e-30))
    same = bool((logits.argmax(1) == expected_logits.argmax(1)).all())
    return EngineResult(engine_name, None, error, same and error <= MAX_RELATIVE_ERROR)


def time_engines(engines: Mapping[str, Engine], pictures: Tensor) -> dict[str, dict[int, float]]:
    """Median seconds of a call by engine and batch: the engines take turns, so that a slow moment meets them all."""
    found: dict[str, dict[int, float]] = {name: {} for name in engines}
    for batch in BENCHMARK_BATCH_SIZES:
        some = pictures[torch.arange(batch) % len(pictures)]
        calls = {
            name: max(1, round(MIN_TURN_SECONDS / measure_seconds_per_call(engine, some, 2)))
            for name, engine in engines.items()
        }
        turns = [
            {name: measure_seconds_per_call(engine, some, calls[name]) for name, engine in engines.items()}
            for _ in range(ENGINE_TIMING_ROUNDS)
        ]
        for name in engines:
            found[name][batch] = statistics.median(turn[name] for turn in turns)
    return found


def measure_seconds_per_call(engine: Engine, pictures: Tensor, calls: int) -> float:
    """Seconds of a call, over some."""
    start = time.perf_counter()
    for _ in range(calls):
        engine(pictures)
    return (time.perf_counter() - start) / calls


def select_engine(results: list[EngineResult]) -> tuple[str, str]:
    """The engine to use, and why: the fastest of those that agree with eager and are slower than it at no batch."""
    times = {one.engine: one.seconds for one in results if one.seconds and one.agrees}
    if BASELINE_ENGINE not in times:
        [eager] = [one for one in results if one.engine == BASELINE_ENGINE]
        raise ValueError(f"the exported model does not answer as the model does ({eager.why_not or eager.error})")
    base = times[BASELINE_ENGINE]
    fit = {
        name: own for name, own in times.items() if all(own[batch] <= base[batch] for batch in BENCHMARK_BATCH_SIZES)
    }
    best = min(fit, key=lambda name: statistics.geometric_mean(fit[name].values()))
    if best == BASELINE_ENGINE:
        return best, "no other engine that answers the same is as fast at every batch"
    shares = " and ".join(f"{fit[best][batch] / base[batch]:.2f} at batch {batch}" for batch in BENCHMARK_BATCH_SIZES)
    return best, f"it takes {shares} of eager's time, and answers the same"
