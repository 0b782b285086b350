"""Run Evidently and NannyML on windows of rows, in their own environment: python run_table_peers.py FOLDER

Reads given.npz and writes found.json in the folder. Both get the reference, which holds the true numbers, and windows
that were cut from streams. Their defaults are used as they are; where another setting is reasonable, it is a row of
its own. Evidently's tests are called as its report calls them, which takes seconds for each window.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"  # or each call reports to a server, and waits where there is none
os.environ["DO_NOT_TRACK"] = "1"
warnings.filterwarnings("ignore")

NO_ALARM = ""
UNNAMED = "?"
SMALLEST_VALUE = 1e-300
VALUES_BY_TEST: dict[tuple[str, int], list[Any]] = {}
SLOW_CLEAN_WINDOWS = 20  # of detectors that take up to seconds for each window
Detector = Callable[[Any, Any, int], list[str]]
"""takes the reference, windows one after the other and their size; returns the column named in each window, UNNAMED if
there is an alarm but no column, or NO_ALARM"""


def split_windows(rows: Any, size: int) -> Iterator[Any]:
    """Yield the windows of a frame that holds them one after the other."""
    for start in range(0, len(rows), size):
        yield rows.iloc[start : start + size]


def name_largest(heights: Any, columns: list[str], thresholds: Any) -> str:
    """Return the column that is farthest over its threshold, or NO_ALARM if none is; the answer comes last."""
    ratios = np.asarray(heights, float) / np.asarray(thresholds, float)
    inputs = ratios[:-1]
    if not (ratios > 1).any():
        return NO_ALARM
    return columns[int(inputs.argmax())] if (inputs > 1).any() else UNNAMED


def evidently_distance(min_columns: int) -> Detector:
    """Return Evidently's default beyond 1,000 rows, the normed Wasserstein distance with the threshold 0.1."""

    def judge_windows(reference: Any, rows: Any, size: int) -> list[str]:
        from evidently.legacy.calculations.stattests import wasserstein_stat_test

        heights = evidently_values(wasserstein_stat_test, reference, rows, size, 0.1)
        names = [name_largest(row, list(rows), 0.1) for row in heights]
        return [
            name if (row >= 0.1).sum() >= min_columns else NO_ALARM for name, row in zip(names, heights, strict=True)
        ]

    return judge_windows


def evidently_ks(p_value: float) -> Detector:
    """Return Evidently's default up to 1,000 rows, the Kolmogorov-Smirnov test of each column."""

    def judge_windows(reference: Any, rows: Any, size: int) -> list[str]:
        from evidently.legacy.calculations.stattests import ks_stat_test

        p_values = evidently_values(ks_stat_test, reference, rows, size, p_value)
        return [name_largest(-np.log(row), list(rows), -np.log(p_value)) for row in p_values]

    return judge_windows


def evidently_values(test: Any, reference: Any, rows: Any, size: int, threshold: float) -> list[Any]:
    """Return the value of a test of each column in each window; p-values of 0 become the smallest number.

    Values are kept for the next detector that differs by its threshold alone.
    """
    from evidently.legacy.core import ColumnType

    def measure_column(part: Any, name: str) -> float:
        result = test(reference[name], part[name], ColumnType.Numerical, threshold)
        return max(float(result.drift_score), SMALLEST_VALUE)

    if (key := (test.name, len(rows))) not in VALUES_BY_TEST:
        parts = split_windows(rows, size)
        VALUES_BY_TEST[key] = [np.array([measure_column(part, name) for name in rows]) for part in parts]
    return VALUES_BY_TEST[key]


def evidently_embeddings(reference: Any, rows: Any, size: int) -> list[str]:
    """Judge windows by Evidently's MMD of all columns together, as it takes embeddings, by bootstrap."""
    from evidently.legacy.metrics.data_drift.embedding_drift_methods import mmd

    detector = mmd(bootstrap=True, quantile_probability=0.95)
    known = reference[list(rows)]
    mean, deviation = known.mean(), known.std()
    scaled = (known - mean) / deviation
    parts = ((part - mean) / deviation for part in split_windows(rows, size))
    return [UNNAMED if detector(part, scaled)[1] else NO_ALARM for part in parts]


def nannyml_univariate(method: str) -> Detector:
    """Return NannyML's watch of each column by a method, with its default threshold."""

    def judge_windows(reference: Any, rows: Any, size: int) -> list[str]:
        from nannyml import UnivariateDriftCalculator

        columns = list(rows)
        calculator = UnivariateDriftCalculator(column_names=columns, continuous_methods=[method], chunk_size=size)
        table = calculator.fit(reference[columns]).calculate(rows).filter(period="analysis").to_df()
        heights = np.stack([table[name, method, "value"] for name in columns], 1)
        thresholds = np.stack([table[name, method, "upper_threshold"] for name in columns], 1).astype(float)
        return [name_largest(row, columns, limits) for row, limits in zip(heights, thresholds, strict=True)]

    return judge_windows


def nannyml_reconstruction(reference: Any, rows: Any, size: int) -> list[str]:
    """Judge windows by NannyML's error of reconstruction from principal components."""
    from nannyml import DataReconstructionDriftCalculator

    columns = list(rows)
    result = DataReconstructionDriftCalculator(column_names=columns, chunk_size=size).fit(reference[columns])
    return read_alerts(result.calculate(rows), "reconstruction_error")


def nannyml_classifier(reference: Any, rows: Any, size: int) -> list[str]:
    """Judge windows by NannyML's classifier that tells them from the reference."""
    from nannyml import DomainClassifierCalculator

    columns = list(rows)
    result = DomainClassifierCalculator(feature_column_names=columns, chunk_size=size).fit(reference[columns])
    return read_alerts(result.calculate(rows), "domain_classifier_auroc")


def nannyml_error(reference: Any, rows: Any, size: int) -> list[str]:
    """Judge windows by NannyML's estimate of the mean absolute error without labels (DLE)."""
    from nannyml import DLE

    columns = [name for name in rows if name != "answer"]
    estimator = DLE(feature_column_names=columns, y_pred="answer", y_true="target", metrics=["mae"], chunk_size=size)
    return read_alerts(estimator.fit(reference).estimate(rows), "mae")


def read_alerts(result: Any, name: str) -> list[str]:
    """Return the alerts of a NannyML result that names no columns."""
    alerts = result.filter(period="analysis").to_df()[name, "alert"]
    return [UNNAMED if alert else NO_ALARM for alert in alerts]


def list_detectors(window: int, columns: int) -> dict[str, tuple[Detector, bool]]:
    """Return the detectors by name, and whether each is slow."""
    p_value = window / 100_000 / columns  # one false alarm in 100,000 rows by Bonferroni
    return {
        "Evidently, default: any column over a distance of 0.1": (evidently_distance(1), False),
        "Evidently, default: half of the columns": (evidently_distance((columns + 1) // 2), False),
        "Evidently, KS with p < 0.05 in any column": (evidently_ks(0.05), False),
        f"Evidently, KS with p < {p_value:.2g} in any column": (evidently_ks(p_value), False),
        "NannyML, default: Jensen-Shannon of any column": (nannyml_univariate("jensen_shannon"), False),
        "NannyML, KS of any column": (nannyml_univariate("kolmogorov_smirnov"), False),
        "NannyML, Wasserstein of any column": (nannyml_univariate("wasserstein"), False),
        "NannyML, reconstruction error": (nannyml_reconstruction, False),
        "NannyML, estimated error without labels (DLE)": (nannyml_error, False),
        "Evidently, MMD of all columns as an embedding": (evidently_embeddings, True),
        "NannyML, domain classifier": (nannyml_classifier, True),
    }


def judge_stream_windows(detector: Detector, is_slow: bool, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the column named in each clean window and in each window of changed streams; None for those left out."""
    import pandas as pd

    columns = arrays["columns"].tolist()
    reference = pd.DataFrame(arrays["reference"], columns=[*columns, "target"])
    clean, is_judged = arrays["clean"], np.ones(len(arrays["changed"]), bool)
    if is_slow:
        clean, is_judged = clean[:SLOW_CLEAN_WINDOWS], arrays["is_few"]
    windows = np.concatenate([clean, arrays["changed"][is_judged]])
    frame = pd.DataFrame(windows.reshape(-1, len(columns)), columns=columns)
    named = iter(detector(reference, frame, windows.shape[1]))
    return {
        "clean": [next(named) for _ in clean],
        "changed": [next(named) if judged else None for judged in is_judged],
    }


def main() -> None:
    """Judge all windows by every detector and write the results."""
    folder = Path(sys.argv[1])
    arrays = dict(np.load(folder / "given.npz"))
    results = {}
    for name, (detector, is_slow) in list_detectors(arrays["clean"].shape[1], len(arrays["columns"])).items():
        try:
            results[name] = judge_stream_windows(detector, is_slow, arrays)
        except Exception as error:
            results[name] = {"why not": f"does not run ({type(error).__name__}: {str(error)[:80]})"}
        print(name, results[name].get("why not", "done"), file=sys.stderr, flush=True)
        (folder / "found.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
