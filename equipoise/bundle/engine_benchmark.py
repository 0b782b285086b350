"""Which engine answers fastest on this machine, of those that answer the same."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from equipoise.bundle.engines import Engine

BATCHES = (1, 8)
ROUNDS = 7
LEAST_SECONDS = 0.02  # of one engine's turn in a round
CLOSE = 1e-5  # to eager fp32, relative to its largest score
BASE = "eager"


@dataclass(frozen=True)
class Result:
    """One engine: how near to eager it answers, and how long it takes."""

    engine: str
    seconds: dict[int, float] | None
    """median of a call, by batch; None if it does not run here"""
    error: float | None
    """largest difference of a score from eager's, relative to eager's largest"""
    agrees: bool
    """whether every label is eager's, and every score close"""
    why_not: str = ""


def contest(makers: Mapping[str, Callable[[], Engine]], truth: Engine, pictures: Tensor) -> list[Result]:
    """Every engine compared with `truth` on all `pictures`, then timed in turns on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        running, refused = {}, []
        for name, maker in makers.items():
            try:
                running[name] = maker()
            except Exception as error:  # whatever an engine raises, the others go on
                refused.append(Result(name, None, None, False, f"{type(error).__name__}: {str(error).strip()[:200]}"))
        expected = answered(truth, pictures)
        found = [compared(name, engine, expected, pictures) for name, engine in running.items()]
        seconds = timed(running, pictures)
        return [Result(one.engine, seconds[one.engine], one.error, one.agrees) for one in found] + refused
    finally:
        torch.set_num_threads(before)


def answered(engine: Engine, pictures: Tensor) -> Tensor:
    """Scores before softmax of all pictures."""
    return torch.cat([engine(part)[0] for part in pictures.split(64)])


def compared(name: str, engine: Engine, expected: Tensor, pictures: Tensor) -> Result:
    """How near an engine's answers are."""
    logits = answered(engine, pictures)
    error = float((logits - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    same = bool((logits.argmax(1) == expected.argmax(1)).all())
    return Result(name, None, error, same and error <= CLOSE)


def timed(engines: Mapping[str, Engine], pictures: Tensor) -> dict[str, dict[int, float]]:
    """Median seconds of a call by engine and batch: the engines take turns, so that a slow moment meets them all."""
    found: dict[str, dict[int, float]] = {name: {} for name in engines}
    for batch in BATCHES:
        some = pictures[torch.arange(batch) % len(pictures)]
        calls = {name: max(1, round(LEAST_SECONDS / once(engine, some, 2))) for name, engine in engines.items()}
        turns = [{name: once(engine, some, calls[name]) for name, engine in engines.items()} for _ in range(ROUNDS)]
        for name in engines:
            found[name][batch] = statistics.median(turn[name] for turn in turns)
    return found


def once(engine: Engine, pictures: Tensor, calls: int) -> float:
    """Seconds of a call, over some."""
    start = time.perf_counter()
    for _ in range(calls):
        engine(pictures)
    return (time.perf_counter() - start) / calls


def winner(results: list[Result]) -> tuple[str, str]:
    """The engine to use, and why: the fastest of those that agree with eager and are slower than it at no batch."""
    times = {one.engine: one.seconds for one in results if one.seconds and one.agrees}
    if BASE not in times:
        [eager] = [one for one in results if one.engine == BASE]
        raise ValueError(f"the exported model does not answer as the model does ({eager.why_not or eager.error})")
    base = times[BASE]
    fit = {name: own for name, own in times.items() if all(own[batch] <= base[batch] for batch in BATCHES)}
    best = min(fit, key=lambda name: statistics.geometric_mean(fit[name].values()))
    if best == BASE:
        return best, "no other engine that answers the same is as fast at every batch"
    shares = " and ".join(f"{fit[best][batch] / base[batch]:.2f} at batch {batch}" for batch in BATCHES)
    return best, f"it takes {shares} of eager's time, and answers the same"
