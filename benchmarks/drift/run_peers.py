"""The detectors of others, in their own environment: python others.py FOLDER RUN_LENGTH

Reads given.npz, writes found.json. Each is used as its own documentation shows, asked for one false alarm in twenty
windows, or in so many pictures where it can be asked. One that does not run is written down with the reason.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")
ALPHA, PERMUTATIONS = 0.05, 200

Arrays = dict[str, Any]
Windowed = Callable[[Any], bool]
Streamed = Callable[[Any], bool]


def alibi_mmd(given: Arrays) -> Windowed:
    """alibi-detect's MMD on features."""
    from alibi_detect.cd import MMDDrift

    made = MMDDrift(given["features"], backend="pytorch", p_val=ALPHA, n_permutations=PERMUTATIONS)
    return lambda window: bool(made.predict(window)["data"]["is_drift"])


def alibi_ks(given: Arrays) -> Windowed:
    """alibi-detect's KS with Bonferroni on features."""
    from alibi_detect.cd import KSDrift

    made = KSDrift(given["features"], p_val=ALPHA)
    return lambda window: bool(made.predict(window)["data"]["is_drift"])


def torchdrift_mmd(given: Arrays) -> Windowed:
    """TorchDrift's MMD."""
    import torch
    from torchdrift.detectors.mmd import GaussianKernel, kernel_mmd

    known = torch.from_numpy(given["features"])
    return lambda window: float(
        kernel_mmd(known, torch.from_numpy(window), n_perm=PERMUTATIONS, kernel=GaussianKernel())[1]
    ) < ALPHA  # fmt: skip


def torchdrift_ks(given: Arrays) -> Windowed:
    """TorchDrift's KS with Bonferroni."""
    import torch
    from torchdrift.detectors import KSDriftDetector

    made = KSDriftDetector()
    made.fit(torch.from_numpy(given["features"]))
    return lambda window: float(made.compute_p_value(torch.from_numpy(window))) < ALPHA


def evidently(method: str) -> Callable[[Arrays], Windowed]:
    """One of evidently's rules for embeddings, as it comes."""

    def make(given: Arrays) -> Windowed:
        import pandas as pd
        from evidently.legacy.metrics.data_drift import embedding_drift_methods as methods

        options = {"mmd": {"bootstrap": True, "quantile_probability": 1 - ALPHA}, "ratio": {}, "distance": {}}[method]
        made, known = getattr(methods, method)(**options), pd.DataFrame(given["features"])
        return lambda window: bool(made(pd.DataFrame(window), known)[1])

    return make


def frouros_mmd(given: Arrays) -> Windowed:
    """frouros' MMD with permutations."""
    from frouros.callbacks import PermutationTestDistanceBased
    from frouros.detectors.data_drift import MMD

    callback = PermutationTestDistanceBased(num_permutations=PERMUTATIONS, random_state=0, num_jobs=1, name="p")
    made = MMD(callbacks=[callback])
    made.fit(X=given["features"].astype(np.float64))
    return lambda window: float(made.compare(X=window.astype(np.float64))[1]["p"]["p_value"]) < ALPHA


def alibi_online(given: Arrays, run_length: float) -> Streamed:
    """alibi-detect's online MMD, asked for the run length."""
    from alibi_detect.cd import MMDDriftOnline

    made = MMDDriftOnline(given["features"], run_length, 64, backend="pytorch", n_bootstraps=20_000, verbose=False)

    def step(one: Any) -> bool:
        high = bool(made.predict(one)["data"]["is_drift"])
        if high:
            made.reset_state()
        return high

    return step


def river_each(name: str) -> Callable[[Arrays, float], Streamed]:
    """One of river's detectors for each feature, as it comes; any of them alarms."""

    def make(given: Arrays, run_length: float) -> Streamed:
        from river import drift

        kind = getattr(drift, name)
        made = [kind() for _ in range(given["features"].shape[1])]
        for row in given["features"]:
            for detector, value in zip(made, row.tolist(), strict=True):
                detector.update(value)

        def step(one: Any) -> bool:
            for detector, value in zip(made, one.tolist(), strict=True):
                detector.update(value)
            return any(detector.drift_detected for detector in made)

        return step

    return make


WINDOWED: dict[str, Callable[[Arrays], Windowed]] = {
    "alibi-detect, MMD": alibi_mmd,
    "alibi-detect, KS": alibi_ks,
    "TorchDrift, MMD": torchdrift_mmd,
    "TorchDrift, KS": torchdrift_ks,
    "evidently, MMD by bootstrap": evidently("mmd"),
    "evidently, ratio": evidently("ratio"),
    "evidently, distance": evidently("distance"),
    "frouros, MMD": frouros_mmd,
}
STREAMED: dict[str, Callable[[Arrays, float], Streamed]] = {
    "alibi-detect, online MMD": alibi_online,
    "river, ADWIN on each feature": river_each("ADWIN"),
    "river, Page-Hinkley on each feature": river_each("PageHinkley"),
}
MOST = {"river, ADWIN on each feature": 5000}  # pictures of a stream, for those that take long


def windows(given: Arrays, make: Callable[[Arrays], Windowed]) -> dict[str, Any]:
    """The share of windows of each kind that it calls drifted."""
    test, found, count = make(given), {}, 0
    begun = time.process_time()
    for name, rows in kinds(given, "windows").items():
        found[name] = f"{np.mean([test(window) for window in rows]):.0%}"
        count += len(rows)
    return {**found, "cost": (time.process_time() - begun) / count * 1e3}


def streams(given: Arrays, make: Callable[[Arrays, float], Streamed], run_length: float, most: int) -> dict[str, Any]:
    """Pictures to an alarm on streams without drift."""
    found, spent, count = {}, 0.0, 0
    for name, rows in kinds(given, "streams").items():
        step = make(given, run_length)
        begun = time.process_time()
        alarms = sum(step(row) for row in rows[:most])
        spent, count = spent + time.process_time() - begun, count + min(len(rows), most)
        found[name] = f"{min(len(rows), most) / alarms:,.0f}" if alarms else f"none in {min(len(rows), most):,}"
    return {**found, "cost": spent / count * 1e6}


def kinds(given: Arrays, part: str) -> Arrays:
    """Features, by what changed."""
    names = [name.split("/")[1] for name in given if name.startswith(f"{part}/") and name.endswith("/features")]
    return {name: given[f"{part}/{name}/features"] for name in names}


def attempted(what: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is found, or why nothing is."""
    try:
        return what()
    except Exception as error:
        return {"why not": f"does not run ({type(error).__name__}: {str(error)[:80]})"}


def main() -> None:
    """All of them."""
    place, run_length = Path(sys.argv[1]), float(sys.argv[2])
    given = dict(np.load(place / "given.npz"))
    found: dict[str, dict[str, Any]] = {"windows": {}, "streams": {}}
    for name, make in WINDOWED.items():
        found["windows"][name] = attempted(lambda make=make: windows(given, make))
        print(name, found["windows"][name], file=sys.stderr, flush=True)
    for name, begin in STREAMED.items():
        found["streams"][name] = attempted(
            lambda begin=begin, name=name: streams(given, begin, run_length, MOST.get(name, 10**9))
        )
        print(name, found["streams"][name], file=sys.stderr, flush=True)
    (place / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
