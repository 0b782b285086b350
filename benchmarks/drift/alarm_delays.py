"""How many requests after a change until the alarm, and what the first verdict says it was."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.drift.image_pool import Pool
from equipoise.drift.charts.baseline import ImageFeatures
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene

CLEAN, DRIFTED = 512, 1600  # requests before a change, and after it at most
STEP = 16
RUN_LENGTH = 100_000.0


@dataclass(frozen=True)
class Told:
    """Of one change."""

    delay: int | None
    """requests from the change to the alarm; None if there was none, below 0 if it was before"""
    cause: str | None
    """at the alarm"""
    since: float
    """by what share of the requests since the change it is off, at the end"""
    sizes: dict[str, float]
    """of each cause at the end"""


GAIN = float(np.log2(0.8))
SCENES: dict[str, tuple[Scene, str, int | None]] = {
    "light 6500 -> 5000 K": (Scene(kelvin=5000), "colour temperature", 150),
    "light 6500 -> 4000 K": (Scene(kelvin=4000), "colour temperature", 50),
    "veil of 5 %": (Scene(veil=0.05), "reflection", 100),
    "gain of 0.8": (Scene(exposure=GAIN), "exposure", 100),
    "blur of 0.8 pixels": (Scene(blur=0.8), "blur", 50),
    "noise of 0.04": (Scene(noise=0.04), "noise", 50),
    "highlight of 0.4": (Scene(highlight=0.4), "reflection", None),
    "JPEG of quality 50": (Scene(jpeg=50), "compression", None),
}
"""what changes, its cause, and within how many requests it is to be found"""
SIZES = {
    "light 6500 -> 5000 K": ("colour temperature", 5000.0),
    "light 6500 -> 4000 K": ("colour temperature", 4000.0),
    "gain of 0.8": ("exposure", GAIN),
}
"""of which the size is to be told"""


def told(known: ReferenceProfile, clean: Pool, drifted: Pool, seed: int) -> Told:
    """One stream that changes."""
    rng = np.random.default_rng(seed)
    watch = StreamDetector.start(known, RUN_LENGTH)
    found: dict[str, Any] | None = None
    for part, count in ((clean, CLEAN), (drifted, DRIFTED)):
        places = rng.integers(0, len(part), count)
        seen = part.some(places).seen(known.baseline.random_fourier, known.baseline.temperature)
        for start in range(0, count, STEP):
            if (
                watch.add_sums(known.baseline.sum_features(piece(seen, start)), float(watch.observed_images))
                and found is None
            ):
                found = compute_stream_verdict(watch)
    end = compute_stream_verdict(watch)
    delay = None if found is None else int(found["since"]["alarm"]["images"]) - CLEAN
    since = abs(end["since"]["images"] - DRIFTED) / DRIFTED if end["since"] else np.nan
    return Told(delay, found and found["cause"], since, {one["cause"]: one["value"] for one in end["effects"]})


def piece(seen: ImageFeatures, start: int) -> ImageFeatures:
    """A step of a stream."""
    return seen.select(list(range(start, start + STEP)))


def strength(known: ReferenceProfile, drifted: Pool) -> float:
    """By how many standard deviations the figure moves that moves most."""
    seen = drifted.seen(known.baseline.random_fourier, known.baseline.temperature)
    return float(np.abs(known.baseline.usual.scores(seen).mean(0)).max())


def size(name: str, found: list[Told]) -> str:
    """By how much the size told is off: of the kelvin, or of the gain."""
    if name not in SIZES:
        return ""
    cause, true = SIZES[name]
    said = np.array([one.sizes.get(cause, np.nan) for one in found])
    off = np.abs(said / true - 1) if cause == "colour temperature" else np.abs(2 ** (said - true) - 1)
    return f"{np.median(off):.1%}, {off.max():.1%}"


def row(name: str, found: list[Told], goal: int | None, right: str, delta: float | None) -> str:
    """Of a table."""
    delays = [one.delay if one.delay is not None else DRIFTED for one in found]
    middle, late = np.median(delays), np.quantile(delays, 0.9)
    bound = "" if delta is None else f"{2 * np.log(RUN_LENGTH) / delta**2:.0f}"
    first = sum(one.cause == right for one in found)
    off = np.nanmax([one.since for one in found])
    return (
        f"| {name} | {'' if delta is None else f'{delta:.2f}'} | {bound} | {goal or ''} | {middle:.0f} | {late:.0f}"
        f" | {first} of {len(found)} | {off:.0%} | {size(name, found)} |"
    )


HEAD = [
    "| change | sd | 2 ln(ARL)/sd^2 | goal | median delay | 90 % | cause right | since: off | size: off, at most |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]
