"""Settings that fit in memory: the last that does, and what is said of those that do not or are not known."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.memory.fitting_options import keep_fitting_options
from equipoise.planning.memory.memory_limit import format_memory, parse_memory
from equipoise.planning.plan import PlanOption
from tests.support.errors import raises_code


def build_option(batch, workers=2):
    return PlanOption(
        nodes=1,
        workers=workers,
        batch=batch,
        lr=0.1,
        examples=1000.0,
        step_seconds=0.1,
        component_seconds=(0.1, 0.0),
        seconds_draws=np.ones(2),
        run_log_sd=0.1,
        degrees_of_freedom=3,
        measured=True,
    )


OPTIONS = [build_option(batch) for batch in (8, 16, 32)]
ROWS = pd.DataFrame({"workers": 2, "batch": [8, 16, 32], "peak_bytes": [8e9, 16e9, 32e9]})


def test_a_setting_that_takes_all_of_the_memory_fits():
    kept, warnings = keep_fitting_options(OPTIONS, ROWS, 16e9)
    assert [option.batch for option in kept] == [8, 16]
    assert warnings == [
        "left out: 1 setting that do not fit in memory, the smallest 2 x 32 needs 32 GB of 16 GB a worker"
    ]
    kept, warnings = keep_fitting_options(OPTIONS, ROWS, 16e9 - 1)
    assert [option.batch for option in kept] == [8]
    assert "2 settings" in warnings[0] and "the smallest 2 x 16 needs" in warnings[0]


def test_where_nothing_fits_the_smallest_setting_is_named_with_the_remedy():
    kept, (warning,) = keep_fitting_options(OPTIONS, ROWS, 4e9)
    assert kept == []
    assert warning.startswith("no setting fits in memory: 2 x 8 needs 8 GB of 4 GB a worker; give more --memory")


def test_settings_that_all_fit_need_no_words():
    assert keep_fitting_options(OPTIONS, ROWS, 32e9) == (OPTIONS, [])


@pytest.mark.parametrize(("rows", "limit"), [(None, 1.0), (ROWS, None), (None, None)])
def test_without_a_limit_or_step_times_every_setting_stays(rows, limit):
    assert keep_fitting_options(OPTIONS, rows, limit) == (OPTIONS, [])


def test_settings_of_which_nothing_is_known_stay_and_are_counted():
    options = [*OPTIONS, build_option(8, workers=1)]
    kept, warnings = keep_fitting_options(options, ROWS, 16e9)
    assert [(option.workers, option.batch) for option in kept] == [(2, 8), (2, 16), (1, 8)]
    assert len(warnings) == 2 and "whether 1 setting of 4 fit in 16 GB a worker is not known" in warnings[1]


@pytest.mark.parametrize(
    ("size", "text"), [(999, "0.999 kB"), (999_000, "999 kB"), (1e6, "1 MB"), (1e9, "1 GB"), (1e12, "1 TB")]
)
def test_a_unit_of_memory_begins_at_its_size(size, text):
    assert format_memory(size) == text


def test_an_amount_of_memory_is_a_byte_or_more():
    assert parse_memory("--memory", "0.001kB") == 1 and parse_memory("--memory", " 999999999.999999999 TiB ") > 1e21
    for text in ("0.0009kB", "1000000000GB", "1.0000000001GB", "1 B", "5 eb"):
        with raises_code("option-format", "--memory"):
            parse_memory("--memory", text)
