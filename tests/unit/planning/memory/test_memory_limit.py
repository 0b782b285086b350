"""Amounts of memory: as people write them, as messages show them, and by batches that were not measured."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.memory.measured_peaks import find_peak
from equipoise.planning.memory.memory_limit import explain_excess, format_memory, parse_memory
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16e9), ("1.5 GiB", 1.5 * 2**30), ("512mib", 2**29), ("2TB", 2e12), ("900 kB", 9e5)]
)
def test_amount_has_decimal_or_binary_units(text, size):
    assert parse_memory("--memory", text) == size


@pytest.mark.parametrize("text", ["", "16", "GB", "0GB", "-1GB", "16 GBit", "1e400GB", "16GB a worker", "nanGB"])
def test_what_is_no_amount_is_refused(text):
    with raises_code("option-format", "--memory must be an amount of memory with its unit, such as 16GB"):
        parse_memory("--memory", text)


def test_amounts_are_shown_in_decimal_units():
    assert [format_memory(size) for size in (16e9, 2.5e12, 512e6, 1e3)] == ["16 GB", "2.5 TB", "512 MB", "1 kB"]
    assert explain_excess(21e9, 16e9) == "needs 21 GB of 16 GB a worker"


def build_rows(exchange, workers, peaks):
    """Build rows of one way of exchange with the peaks of some batches."""
    rows = [(workers, batch, peak, exchange) for batch, peak in peaks.items()]
    return pd.DataFrame(rows, columns=["workers", "batch", "peak_bytes", "exchange"])


def test_peak_of_another_batch_is_on_the_line_of_two():
    rows = build_rows("", 2, {8: 1800.0, 16: np.nan, 32: 4200.0})
    assert find_peak(rows, 2, 8) == 1800
    assert find_peak(rows, 2, 16) == pytest.approx(2600) and find_peak(rows, 2, 64) == pytest.approx(7400)


def test_other_workers_tell_of_whole_models_alone():
    assert find_peak(build_rows("", 2, {8: 1800.0, 32: 4200.0}), 4, 16) == pytest.approx(2600)
    assert find_peak(build_rows("full", 2, {8: 1800.0, 32: 4200.0}), 4, 16) is None
    assert find_peak(build_rows("", 2, {8: 1800.0, 32: 4200.0}), 1, 16) is None


def test_peak_is_unknown_by_less_than_two_batches():
    assert find_peak(build_rows("", 2, {8: 1800.0}), 2, 16) is None
    assert find_peak(build_rows("", 2, {8: np.nan, 16: np.nan}), 2, 8) is None
    assert find_peak(build_rows("", 2, {8: 1.0, 16: 2.0}).drop(columns="peak_bytes"), 2, 8) is None


def test_peak_does_not_fall_with_the_batch():
    assert find_peak(build_rows("", 2, {8: 1800.0, 32: 1700.0}), 2, 64) == pytest.approx(1750)
