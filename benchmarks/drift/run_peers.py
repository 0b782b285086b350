"""Run other projects' drift detectors, in their own environment: python run_peers.py FOLDER RUN_LENGTH

Reads given.npz and writes found.json in the folder. Each detector is used as its own documentation shows, set to one
false alarm in twenty windows, or to the run length where it has such a setting. If one does not run, the reason is
written instead.
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
WindowTest = Callable[[Any], bool]
StreamTest = Callable[[Any], bool]


def build_alibi_mmd(arrays: Arrays) -> WindowTest:
    """Build alibi-detect's MMD test on features."""
    from alibi_detect.cd import MMDDrift

    detector = MMDDrift(arrays["features"], backend="pytorch", p_val=ALPHA, n_permutations=PERMUTATIONS)
    return lambda window: bool(detector.predict(window)["data"]["is_drift"])


def build_alibi_ks(arrays: Arrays) -> WindowTest:
    """Build alibi-detect's Kolmogorov-Smirnov test with Bonferroni correction, on features."""
    from alibi_detect.cd import KSDrift

    detector = KSDrift(arrays["features"], p_val=ALPHA)
    return lambda window: bool(detector.predict(window)["data"]["is_drift"])


def build_torchdrift_mmd(arrays: Arrays) -> WindowTest:
    """Build TorchDrift's MMD test on features."""
    import torch
    from torchdrift.detectors.mmd import GaussianKernel, kernel_mmd

    reference = torch.from_numpy(arrays["features"])
    return lambda window: float(
        kernel_mmd(reference, torch.from_numpy(window), n_perm=PERMUTATIONS, kernel=GaussianKernel())[1]
    ) < ALPHA  # fmt: skip


def build_torchdrift_ks(arrays: Arrays) -> WindowTest:
    """Build TorchDrift's Kolmogorov-Smirnov test with Bonferroni correction, on features."""
    import torch
    from torchdrift.detectors import KSDriftDetector

    detector = KSDriftDetector()
    detector.fit(torch.from_numpy(arrays["features"]))
    return lambda window: float(detector.compute_p_value(torch.from_numpy(window))) < ALPHA


def evidently_builder(method: str) -> Callable[[Arrays], WindowTest]:
    """Return the builder of one of evidently's tests for embeddings, with its default settings."""

    def build_test(arrays: Arrays) -> WindowTest:
        import pandas as pd
        from evidently.legacy.metrics.data_drift import embedding_drift_methods as methods

        options = {"mmd": {"bootstrap": True, "quantile_probability": 1 - ALPHA}, "ratio": {}, "distance": {}}[method]
        detector, reference = getattr(methods, method)(**options), pd.DataFrame(arrays["features"])
        return lambda window: bool(detector(pd.DataFrame(window), reference)[1])

    return build_test


def build_frouros_mmd(arrays: Arrays) -> WindowTest:
    """Build frouros' MMD test with permutations."""
    from frouros.callbacks import PermutationTestDistanceBased
    from frouros.detectors.data_drift import MMD

    callback = PermutationTestDistanceBased(num_permutations=PERMUTATIONS, random_state=0, num_jobs=1, name="p")
    detector = MMD(callbacks=[callback])
    detector.fit(X=arrays["features"].astype(np.float64))
    return lambda window: float(detector.compare(X=window.astype(np.float64))[1]["p"]["p_value"]) < ALPHA


def build_alibi_online(arrays: Arrays, run_length: float) -> StreamTest:
    """Build alibi-detect's online MMD, set to the requested run length."""
    from alibi_detect.cd import MMDDriftOnline

    detector = MMDDriftOnline(arrays["features"], run_length, 64, backend="pytorch", n_bootstraps=20_000, verbose=False)

    def test_row(row: Any) -> bool:
        is_drift = bool(detector.predict(row)["data"]["is_drift"])
        if is_drift:
            detector.reset_state()
        return is_drift

    return test_row


def river_builder(name: str) -> Callable[[Arrays, float], StreamTest]:
    """Return the builder of one default river detector for each feature; an alarm of any of them is an alarm."""

    def build_test(arrays: Arrays, run_length: float) -> StreamTest:
        from river import drift

        detector_class = getattr(drift, name)
        detectors = [detector_class() for _ in range(arrays["features"].shape[1])]
        for row in arrays["features"]:
            for detector, value in zip(detectors, row.tolist(), strict=True):
                detector.update(value)

        def test_row(row: Any) -> bool:
            for detector, value in zip(detectors, row.tolist(), strict=True):
                detector.update(value)
            return any(detector.drift_detected for detector in detectors)

        return test_row

    return build_test


WINDOW_TEST_BUILDERS: dict[str, Callable[[Arrays], WindowTest]] = {
    "alibi-detect, MMD": build_alibi_mmd,
    "alibi-detect, KS": build_alibi_ks,
    "TorchDrift, MMD": build_torchdrift_mmd,
    "TorchDrift, KS": build_torchdrift_ks,
    "evidently, MMD by bootstrap": evidently_builder("mmd"),
    "evidently, ratio": evidently_builder("ratio"),
    "evidently, distance": evidently_builder("distance"),
    "frouros, MMD": build_frouros_mmd,
}
STREAM_TEST_BUILDERS: dict[str, Callable[[Arrays, float], StreamTest]] = {
    "alibi-detect, online MMD": build_alibi_online,
    "river, ADWIN on each feature": river_builder("ADWIN"),
    "river, Page-Hinkley on each feature": river_builder("PageHinkley"),
}
MAX_STREAM_IMAGES = {"river, ADWIN on each feature": 5000}  # for slow detectors


def measure_window_verdicts(arrays: Arrays, build_test: Callable[[Arrays], WindowTest]) -> dict[str, Any]:
    """Return the share of windows of each kind judged as drifted, and the cost in CPU ms a window."""
    test, result, count = build_test(arrays), {}, 0
    start = time.process_time()
    for name, windows in select_features(arrays, "windows").items():
        result[name] = f"{np.mean([test(window) for window in windows]):.0%}"
        count += len(windows)
    return {**result, "cost": (time.process_time() - start) / count * 1e3}


def measure_stream_alarms(
    arrays: Arrays, build_test: Callable[[Arrays, float], StreamTest], run_length: float, max_images: int
) -> dict[str, Any]:
    """Return the images between alarms on streams without drift, and the cost in CPU us an image."""
    result, seconds, count = {}, 0.0, 0
    for name, rows in select_features(arrays, "streams").items():
        test = build_test(arrays, run_length)
        start = time.process_time()
        alarms = sum(test(row) for row in rows[:max_images])
        seconds, count = seconds + time.process_time() - start, count + min(len(rows), max_images)
        result[name] = (
            f"{min(len(rows), max_images) / alarms:,.0f}" if alarms else f"none in {min(len(rows), max_images):,}"
        )
    return {**result, "cost": seconds / count * 1e6}


def select_features(arrays: Arrays, part: str) -> Arrays:
    """Return the feature arrays of the windows or of the streams, by what changed in them."""
    names = [name.split("/")[1] for name in arrays if name.startswith(f"{part}/") and name.endswith("/features")]
    return {name: arrays[f"{part}/{name}/features"] for name in names}


def try_measurement(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a measurement, or the reason why it does not run."""
    try:
        return measure()
    except Exception as error:
        return {"why not": f"does not run ({type(error).__name__}: {str(error)[:80]})"}


def main() -> None:
    """Measure every detector and write the results."""
    folder, run_length = Path(sys.argv[1]), float(sys.argv[2])
    arrays = dict(np.load(folder / "given.npz"))
    results: dict[str, dict[str, Any]] = {"windows": {}, "streams": {}}
    for name, build_test in WINDOW_TEST_BUILDERS.items():
        results["windows"][name] = try_measurement(
            lambda build_test=build_test: measure_window_verdicts(arrays, build_test)
        )
        print(name, results["windows"][name], file=sys.stderr, flush=True)
    for name, build_test in STREAM_TEST_BUILDERS.items():
        results["streams"][name] = try_measurement(
            lambda build_test=build_test, name=name: measure_stream_alarms(
                arrays, build_test, run_length, MAX_STREAM_IMAGES.get(name, 10**9)
            )
        )
        print(name, results["streams"][name], file=sys.stderr, flush=True)
    (folder / "found.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
