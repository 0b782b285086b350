"""Plans from step times of two devices, of which one is twice as slow by a closed form, and of training runs."""

from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits, DevicePrices
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan
from equipoise.planning.plan import ClusterShape
from equipoise.planning.step_time_fit import fit_step_time
from tests.support.device_tables import GRADIENT_BYTES, SLOWNESS, build_device_steps, build_shared_runs, step_seconds
from tests.support.errors import raises_code

LARGER = ClusterShape(1, 8)
EXCHANGE_FACTS = {"exchange": "", "bits_per_second": 1e9, "gradient_bytes": GRADIENT_BYTES, "sent_bytes": 1.5e7}


def plan_devices(system, prices=(), otherwise=None, budget=None, wanted=None, **request):
    """Return the plan of a table of step times, after writing and reading it."""
    limits = CostLimits(prices=DevicePrices(by_device=dict(prices), otherwise=otherwise), budget_dollars=budget)
    document = build_device_plan(PlanRequest(system=system, **request), wanted or ExchangeRequest(), limits).document
    assert PlanDocument.from_json(document.to_json()) == document
    return document


@cache
def plan_two(a10=None, h100=None, **request):
    """Return the plan of two devices with their prices."""
    prices = {name: price for name, price in (("a10", a10), ("h100", h100)) if price}
    return plan_devices(build_device_steps(), prices, statistical=build_shared_runs(), **request)


def find_fit(document, device):
    [fit] = [fit for fit in document.system.devices if fit.device == device]
    return fit


def test_each_device_is_fitted_by_itself():
    system = plan_two().system
    assert [fit.device for fit in system.devices] == ["a10", "h100"]
    alone = fit_step_time(build_device_steps(["h100"]))
    assert find_fit(plan_two(), "h100").parameters == alone.parameters
    for fit in system.devices:
        assert fit.parameters["c"] == pytest.approx(0.001 * SLOWNESS[fit.device], rel=0.05)
    for row in system.predictions:
        assert row.seconds == pytest.approx(step_seconds(row.workers, row.batch, row.device), rel=0.02)
    assert len(system.predictions) == 8 and {row.device for row in system.fit_predictions} == {system.device}


@pytest.mark.slow
def test_larger_clusters_are_predicted_for_each_device():
    system = plan_devices(build_device_steps(workers=(1, 2, 4)), cluster_shapes=(LARGER,)).system
    predicted = {(row.device, row.batch): row.seconds for row in system.predictions if not row.measured}
    assert {*predicted} == {(device, batch) for device in SLOWNESS for batch in (32, 128)}
    for (device, batch), seconds in predicted.items():
        assert seconds == pytest.approx(step_seconds(LARGER.workers, batch, device), rel=0.02)
    assert all(fit.identifiable for fit in system.devices)


def test_without_prices_devices_are_compared_by_time_alone():
    document = plan_two()
    assert document.plan.device == document.system.device == "h100" == document.runner_up.device
    best = {fit.device: fit.seconds.value for fit in document.system.devices}
    assert best["a10"] == pytest.approx(2 * best["h100"], rel=0.02)
    assert document.plan.seconds.value == best["h100"] < best["a10"]
    assert find_fit(document, "a10").verdict == "h100: 2 times sooner than a10"
    assert find_fit(document, "h100").verdict == ""
    seconds = [setting.seconds.value for setting in document.front]
    assert {setting.device for setting in document.front} == {"a10", "h100"} and seconds == sorted(seconds)
    assert {setting.dollars for setting in document.front} == {None} and document.knee is None
    assert [text for text in document.warnings if "give --price for a10 and h100" in text]


@pytest.mark.parametrize(("h100_price", "devices_on_front"), [(1.5, {"h100"}), (3.0, {"a10", "h100"})])
def test_with_prices_the_front_is_of_time_against_dollars(h100_price, devices_on_front):
    document = plan_two(1.0, h100_price)
    assert {setting.device for setting in document.front} == devices_on_front
    prices = {"a10": 1.0, "h100": h100_price}
    for setting in (*document.front, *document.options, document.plan):
        assert setting.dollars == pytest.approx(setting.worker_seconds / 3600 * prices[setting.device])
    for setting in document.front:
        faster = [other for other in document.options if other.seconds.value < setting.seconds.value]
        assert all(other.dollars > setting.dollars for other in faster)
    assert not [text for text in document.warnings if "--price" in text]
    assert find_fit(document, "a10").verdict == f"h100: 2 times sooner, {h100_price / 2:.2g} times the cost of a10"
    assert [fit.price for fit in document.system.devices] == [1.0, h100_price]


@pytest.mark.parametrize(("h100_price", "cheaper"), [(1.5, "h100"), (3.0, "a10")])
def test_price_decides_which_device_meets_a_deadline(h100_price, cheaper):
    document = plan_two(1.0, h100_price, deadline_seconds=1e4)
    assert document.plan.device == cheaper
    measured = [option.dollars for option in document.options if option.measured]
    assert document.plan.dollars <= min(measured)
    assert document.system.parameters == find_fit(document, cheaper).parameters


def test_budget_buys_less_time_of_a_dearer_device():
    unlimited = plan_two(1.0, 3.0)
    cheapest = {
        device: min(option.dollars for option in unlimited.options if option.device == device) for device in SLOWNESS
    }
    assert cheapest["h100"] == pytest.approx(1.5 * cheapest["a10"], rel=0.02)
    budget = (cheapest["a10"] + cheapest["h100"]) / 2
    document = plan_two(1.0, 3.0, budget=budget)
    assert document.plan.device == "a10" and document.plan.dollars <= budget
    assert [text for text in document.warnings if text.startswith("h100: no plan is within the given limits")]
    assert [text for text in document.warnings if text.startswith("h100: the cheapest setting costs ")]
    assert find_fit(document, "h100").seconds is None and {option.device for option in document.options} == {*SLOWNESS}


def test_device_without_a_price_is_left_out_of_a_budget():
    document = plan_two(1.0, budget=1e3)
    assert document.plan.device == "a10" == document.system.device
    assert {option.device for option in document.options} == {"a10"}
    assert [text for text in document.warnings if text.startswith("h100: left out, because --price says nothing of it")]
    assert find_fit(document, "h100").parameters["c"] == pytest.approx(0.001, rel=0.05)


@pytest.mark.slow
def test_price_without_a_name_is_that_of_all_devices():
    document = plan_devices(build_device_steps(), otherwise=1.0, budget=1e3, statistical=build_shared_runs())
    assert document.plan.device == "h100" and not [text for text in document.warnings if "left out" in text]
    assert document.plan.dollars == pytest.approx(document.plan.worker_seconds / 3600)


@pytest.mark.slow
def test_no_device_with_a_plan_says_why_for_each():
    document = plan_two(1.0, 3.0, budget=1e-6)
    assert document.plan is None and document.front
    assert [text.partition(":")[0] for text in document.warnings[:4]] == ["a10", "a10", "h100", "h100"]


def test_table_without_devices_is_planned_as_before():
    steps = build_device_steps(["h100"]).drop(columns="device")
    request = PlanRequest(system=steps, statistical=build_shared_runs())
    before = build_exchange_plan(request, ExchangeRequest()).document
    assert plan_devices(steps.assign(device=""), statistical=build_shared_runs()) == before
    priced = plan_devices(steps, otherwise=3.6, budget=1e3, statistical=build_shared_runs())
    assert priced.plan.dollars == pytest.approx(before.plan.worker_seconds / 1000)
    assert (priced.plan.device, priced.system.devices) == (None, ())
    assert replace(priced.plan, dollars=None) == before.plan


@pytest.mark.slow
def test_rows_without_a_device_are_a_device_of_their_own():
    steps = build_device_steps().replace({"device": {"a10": ""}})
    document = plan_devices(steps, {"h100": 3.0}, budget=1e3, statistical=build_shared_runs())
    assert [fit.device for fit in document.system.devices] == [None, "h100"]
    [warning] = [text for text in document.warnings if "left out" in text]
    assert warning.endswith("add an amount without a name")


@pytest.mark.slow
def test_training_runs_are_shared_and_not_needed_for_predictions():
    document, without = plan_two(), plan_devices(build_device_steps())
    examples = {device: {} for device in SLOWNESS}
    for option in document.options:
        examples[option.device][option.global_batch] = option.examples
    assert examples["a10"] == examples["h100"] and {*examples["a10"]} >= {64, 128, 256}
    assert {*examples["a10"]} <= {row.global_batch for row in document.statistical.predictions}
    assert without.plan is None and without.warnings == (
        "no --statistical was given: the time to the target cannot be predicted",
    )


@pytest.mark.slow
def test_ways_of_exchange_are_predicted_for_each_device():
    steps = build_device_steps().assign(**EXCHANGE_FACTS)
    document = plan_devices(steps, wanted=ExchangeRequest(names=("local:8",)))
    predicted = {
        (row.device, row.workers, row.batch): row.seconds
        for row in document.system.predictions
        if row.exchange == "local:8"
    }
    assert {device for device, _, _ in predicted} == {*SLOWNESS}
    for (device, workers, batch), seconds in predicted.items():
        exchange = step_seconds(workers, batch, device) - step_seconds(1, batch, device)
        assert seconds == pytest.approx(step_seconds(1, batch, device) + exchange / 8, rel=0.05)


@pytest.mark.slow
def test_label_that_only_some_devices_have_is_predicted_there():
    labelled = build_device_steps(["h100"]).assign(**EXCHANGE_FACTS | {"exchange": "mine"})
    steps = pd.concat([build_device_steps().assign(**EXCHANGE_FACTS), labelled])
    document = plan_devices(steps, wanted=ExchangeRequest(names=("mine",)))
    assert {row.device for row in document.system.predictions if row.exchange == "mine"} == {"h100"}
    assert [gap for gap in find_fit(document, "a10").missing if "'mine'" in gap]
    with raises_code("option-choice"):
        plan_devices(steps, wanted=ExchangeRequest(names=("yours",)))


@pytest.mark.slow
def test_timings_of_the_network_may_be_of_one_device():
    steps = build_device_steps().assign(gradient_bytes=GRADIENT_BYTES)
    sizes = [(workers, share) for workers in (2, 4) for share in (0.01, 1.0)]
    rows = [(1, workers, "sum", share, 0.001 + 0.04 * share * (workers - 1) / workers) for workers, share in sizes]
    timed = pd.DataFrame(rows, columns=["nodes", "workers", "kind", "share", "seconds"])
    both = plan_devices(steps, exchange=timed).system
    slow_only = plan_devices(steps, exchange=timed.assign(device="a10")).system
    neither = plan_devices(steps).system
    parameters = [[fit.parameters for fit in system.devices] for system in (both, slow_only, neither)]
    assert parameters[1] == [parameters[0][0], parameters[2][1]] and parameters[0][0] != parameters[2][0]


def test_price_of_an_unknown_device_is_refused():
    with raises_code("option-choice", "a10, h100"):
        plan_devices(build_device_steps(), {"h10": 1.0})
    with raises_code("option-choice", "name devices in a column device"):
        plan_devices(build_device_steps(["h100"]).drop(columns="device"), {"h100": 1.0})
    with raises_code("option-choice"):
        plan_devices(None, {"h100": 1.0}, statistical=build_shared_runs())
