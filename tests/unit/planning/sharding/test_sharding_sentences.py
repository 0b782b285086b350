"""Verdicts on shardings from speed-ups and peaks that are given, and which options a limit of memory allows."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.sharding.sharding_verdicts import ShardingEstimate, compare_sharding, explain_whole_model
from tests.unit.planning.sharding.test_sharding_verdicts import CONFIG, build_limit

FORM = "by its closed form "
WHOLE = "the whole model needs 4 GB of 2 GB a worker"


def build_sharding(speedup, name="full", peak=1.5e9, fits=True):
    option = SimpleNamespace(seconds=10.0)
    estimate = SimpleNamespace(exchange=name, option=option, speedup=SimpleNamespace(value=speedup))
    return ShardingEstimate(estimate=estimate, peak_bytes=peak, fits=fits)


@pytest.mark.parametrize(
    ("speedup", "verdict", "text"),
    [
        (0.5, "slower", "by its closed form takes 2 times as long as with whole models"),
        (1.0, "no gain", "by its closed form takes 1 times as long as with whole models"),
        (1.04, "no gain", "by its closed form is 4% sooner"),
        (MIN_GAIN, "unknown", "by its closed form is 5% sooner"),
        (3.0, "unknown", "by its closed form is 3 times sooner"),
    ],
)
def test_a_sharding_that_nothing_needs_is_judged_by_its_time(speedup, verdict, text):
    for has_plan in (True, False):
        assert compare_sharding(build_sharding(speedup), None, WHOLE, FORM, has_plan=has_plan) == (
            verdict,
            f"{text}; {WHOLE}",
        )
        timed = compare_sharding(build_sharding(speedup), None, WHOLE, "", has_plan=has_plan)
        assert timed == (verdict, f"{text.removeprefix(FORM)}; {WHOLE}")


def test_the_one_that_is_used_says_where_it_fits_and_others_that_they_are_later():
    winner, other = build_sharding(1.5), build_sharding(1.2, "optimizer")
    assert compare_sharding(winner, winner, WHOLE, FORM, has_plan=True) == (
        "use", f"fits in 1.5 GB a worker and is 50% sooner: {WHOLE}",
    )  # fmt: skip
    assert compare_sharding(winner, winner, WHOLE, FORM, has_plan=False) == ("use", f"fits in 1.5 GB a worker: {WHOLE}")
    assert compare_sharding(other, winner, WHOLE, FORM, has_plan=True) == ("slower", "fits too, but later than full")


def test_what_does_not_fit_never_reaches_the_target():
    assert build_sharding(1.0).seconds == 10 and build_sharding(1.0, fits=False).seconds == float("inf")
    assert explain_whole_model(4e9, 2e9, binds=False) == WHOLE
    assert explain_whole_model(4e9, 2e9, binds=True) == f"{WHOLE} at its best setting"


def test_missing_peaks_are_predicted_and_measured_ones_stay():
    limit = build_limit(1.0)
    steps = pd.DataFrame({"workers": [4, 4], "batch": [8, 16], "peak_bytes": [7.0, None]}, index=[3, 9])
    filled = limit.fill_peaks(steps).peak_bytes
    assert filled.tolist() == [7.0, limit.predict_peak("", 4, 16)] and filled.index.tolist() == [3, 9]
    predicted = limit.fill_peaks(steps.drop(columns="peak_bytes")).peak_bytes.tolist()
    assert predicted == [limit.predict_peak("", 4, batch) for batch in (8, 16)]


def test_measured_peaks_move_the_prediction_of_every_way_and_none_is_below_zero():
    limit = build_limit(1.0)
    whole, full = (limit.predict_parts(name, 4, 16).total for name in ("", "full"))
    for change in (5e7, -5e7):
        steps = pd.DataFrame({"workers": [4], "batch": [16], "peak_bytes": [whole + change]})
        assert limit.predict_peak("full", 4, 16, steps) == pytest.approx(full + change)
        assert limit.predict_peak("", 4, 16, steps) == pytest.approx(whole + change)
    tiny = pd.DataFrame({"workers": [4], "batch": [16], "peak_bytes": [1.0]})
    assert limit.predict_peak("full", 4, 16, tiny) == 0


def test_options_of_the_runs_decide_which_ways_may_be_used():
    limit = build_limit(1.0)
    assert limit.can_use("full", 4) and limit.can_use("tensor:2", 4)
    assert not limit.can_use("tensor:2", 3) and not limit.can_use("mine", 4)
    assert not build_limit(1.0, replace(CONFIG, optimizer="adafactor")).can_use("full", 4)
