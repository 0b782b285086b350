"""Compare computed values with those that an earlier version recorded.

Runs, plans and references of different days are compared with each other, so a version must not change them in
passing. After a change that is meant to: EQUIPOISE_RECORD=1 pytest tests/unit/recorded
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

RECORDED_FOLDER = Path(__file__).parents[1] / "data" / "recorded"
MAX_VALUES = 64  # of each array, evenly spaced
DECIMAL_DIGITS = 5


def assert_as_recorded(name: str, values: Mapping[str, object], rtol: float = 1e-3, atol: float = 1e-6) -> None:
    """Assert that arrays are, up to rounding on other processors, what is recorded under this name."""
    arrays = {key: thin_array(np.asarray(value)) for key, value in values.items()}
    file = RECORDED_FOLDER / f"{name}.npz"
    if os.environ.get("EQUIPOISE_RECORD"):
        np.savez_compressed(file, allow_pickle=False, **arrays)
    with np.load(file, allow_pickle=False) as recorded:
        assert arrays.keys() == {*recorded}
        for key, array in arrays.items():
            if array.dtype.kind in "iufb":
                np.testing.assert_allclose(array.astype(float), recorded[key].astype(float), rtol, atol, err_msg=key)
            else:
                assert array.tolist() == recorded[key].tolist(), key


def thin_array(array: np.ndarray) -> np.ndarray:
    """Return at most MAX_VALUES evenly spaced values; images, which are bytes, are kept whole."""
    if array.dtype == np.uint8:
        return array
    flat = array.ravel()
    return flat[np.linspace(0, len(flat) - 1, min(len(flat), MAX_VALUES)).astype(int)]
