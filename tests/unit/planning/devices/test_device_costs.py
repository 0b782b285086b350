"""Prices of devices, the text about them, and which device a plan takes, from settings that are given."""

from types import SimpleNamespace

import pytest

from equipoise.planning.devices.device_plan import choose_device, common_warnings, costs_are_comparable, join_fronts
from equipoise.planning.devices.device_prices import (
    CostLimits,
    DevicePrices,
    convert_to_dollars,
    list_unpriced_devices,
    require_known_devices,
)
from equipoise.planning.devices.device_rows import select_device_rows, select_network_rows
from equipoise.planning.devices.device_sections import find_soonest_options
from equipoise.planning.devices.device_text import format_dollars, format_kind, format_soonest_options, has_dollars
from equipoise.planning.devices.device_verdicts import compare_plans
from equipoise.planning.measurements import read_step_times
from tests.support.errors import raises_code

PRICES = DevicePrices(by_device={"a10": 2.0}, otherwise=4.0)


def test_price_of_a_device_goes_before_that_of_all_others():
    assert (PRICES.find_price("a10"), PRICES.find_price("h100"), PRICES.find_price("")) == (2.0, 4.0, 4.0)
    assert DevicePrices(by_device={"a10": 2.0}).find_price("h100") is None
    assert list_unpriced_devices(DevicePrices(by_device={"a10": 2.0}), ["a10", "h100", ""]) == [
        "h100",
        "the device without a name",
    ]


def test_prices_are_for_an_hour():
    limits = CostLimits(prices=PRICES, budget_dollars=3.0)
    assert limits.worker_seconds("a10") == 5400 and limits.worker_seconds("h100") == 2700
    assert CostLimits(prices=PRICES).worker_seconds("a10") is None
    assert CostLimits(budget_dollars=3.0).worker_seconds("a10") is None
    assert convert_to_dollars(5400, 2.0) == 3.0


def test_a_price_of_no_device_is_refused_with_those_that_there_are():
    require_known_devices(PRICES, ["a10", "h100"])
    with raises_code("option-choice", "price of 'a10'", "its column device has h100, b200"):
        require_known_devices(PRICES, ["h100", "", "b200"])
    with raises_code("option-choice", "price of 'a10'", "--price 3.06usd"):
        require_known_devices(PRICES, [""])


def build_setting(device, seconds, dollars=None, global_batch=64):
    return SimpleNamespace(
        device=device, seconds=SimpleNamespace(value=seconds), dollars=dollars, global_batch=global_batch
    )


def build_document(*settings, warnings=(), knee=None):
    plan = min(settings, key=lambda setting: setting.seconds.value, default=None)
    return SimpleNamespace(plan=plan, front=settings, options=settings, warnings=warnings, knee=knee)


def build_candidate(device, *settings, price=None, warnings=()):
    return SimpleNamespace(device=device, price=price, document=build_document(*settings, warnings=warnings))


SLOW = build_candidate("a10", build_setting("a10", 20.0, 1.0), price=2.0)
FAST = build_candidate("h100", build_setting("h100", 5.0, 3.0), price=9.0)
EMPTY = build_candidate("b200")


def test_the_fastest_device_is_chosen_and_the_cheapest_within_a_deadline():
    assert choose_device([SLOW, FAST], by_cost=False) is FAST and choose_device([SLOW, FAST], by_cost=True) is SLOW
    unpriced = build_candidate("h100", build_setting("h100", 5.0))
    assert choose_device([SLOW, unpriced], by_cost=True) is unpriced  # costs cannot be compared
    assert choose_device([EMPTY, SLOW], by_cost=True) is SLOW
    assert choose_device([EMPTY, build_candidate("x")], by_cost=False) is EMPTY
    same = build_candidate("x", build_setting("x", 5.0, 2.0), price=9.0)
    assert choose_device([FAST, same], by_cost=False) is same  # as fast, and cheaper


def test_costs_are_comparable_where_all_devices_with_settings_have_a_price():
    unpriced = build_candidate("h100", build_setting("h100", 5.0))
    assert costs_are_comparable([SLOW, FAST, EMPTY]) and costs_are_comparable([unpriced, EMPTY])
    assert not costs_are_comparable([SLOW, unpriced]) and costs_are_comparable([])


def test_front_is_of_time_against_dollars_and_without_a_price_of_all_by_time():
    front, knee = join_fronts([SLOW, FAST], SLOW.document)
    assert [setting.device for setting in front] == ["h100", "a10"] and knee is None
    beaten = build_candidate("x", build_setting("x", 30.0, 2.0))
    assert [setting.device for setting in join_fronts([SLOW, FAST, beaten], SLOW.document)[0]] == ["h100", "a10"]
    middle = build_candidate("y", build_setting("y", 6.0, 1.1))
    front, knee = join_fronts([SLOW, FAST, middle], SLOW.document)
    assert [setting.device for setting in front] == ["h100", "y", "a10"] and knee.device == "y"
    unpriced = build_candidate("x", build_setting("x", 10.0))
    front, knee = join_fronts([SLOW, FAST, unpriced], SLOW.document)
    assert [setting.device for setting in front] == ["h100", "x", "a10"] and knee is None
    alone = build_document(*SLOW.document.front, knee="its own")
    assert join_fronts([SLOW, EMPTY], alone) == (SLOW.document.front, "its own")


def test_warnings_of_all_devices_are_common_ones():
    candidates = [build_candidate(name, warnings=texts) for name, texts in (("a", "xyz"), ("b", "zx"), ("c", "yzx"))]
    assert common_warnings(candidates) == ["x", "z"] and common_warnings(candidates[:1]) == ["x", "y", "z"]


def test_plans_are_compared_by_time_and_cost():
    fast, slow = build_setting("h100", 5.0, 3.0), build_setting("a10", 20.0, 1.0)
    text = "h100: 4 times sooner, 3 times the cost of a10"
    assert compare_plans(fast, slow) == compare_plans(slow, fast) == text
    assert compare_plans(fast, build_setting(None, 20.0)) == "h100: 4 times sooner than the device without a name"
    assert compare_plans(build_setting("x", 10.0), slow) == "x: 2 times sooner than a10"
    assert compare_plans(None, slow) == compare_plans(fast, None) == ""


def test_text_names_devices_and_dollars_where_there_are_some():
    assert format_kind("a10") == ", on a10" and format_kind(None) == format_kind("") == ""
    priced, free = build_setting("a10", 1.0, 12345.678), build_setting("b", 2.0)
    both, none = build_document(priced, free), build_document(free)
    assert has_dollars(both) and not has_dollars(none)
    assert has_dollars(SimpleNamespace(plan=priced, front=())) and not has_dollars(SimpleNamespace(plan=None, front=()))
    assert format_dollars(priced, both) == f"  {'12,346':>10}" and format_dollars(free, both) == " " * 12
    assert format_dollars(priced, none) == ""


def test_soonest_settings_are_of_each_device_at_the_global_batch():
    settings = [
        build_setting("a10", 9.0),
        build_setting("h100", 4.0),
        build_setting("a10", 7.0),
        build_setting("a10", 1.0, global_batch=128),
        build_setting("h100", 4.0, dollars=1.0),
    ]
    document = build_document(*settings)
    assert find_soonest_options(document, 64) == {"a10": settings[2], "h100": settings[1]}
    assert format_soonest_options(document, 64) == "; 7 s at best, on a10; 4 s at best, on h100"
    assert format_soonest_options(document, 32) == ""
    assert format_soonest_options(build_document(build_setting(None, 3.0)), 64) == ""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "system.csv"
    name = "x" * 60
    path.write_text(f"nodes,workers,batch,seconds,device\n1,1,8,1,{name}\n1,1,9,1,{name}\n1,1,8,2,\n1,1,9,2,\n")
    return read_step_times(path)


def test_rows_of_a_device_and_of_the_network_between_its_workers(table):
    name = "x" * 60  # as long as a name may be
    assert select_device_rows(table, name).seconds.tolist() == [1, 1]
    assert select_device_rows(table, "").index.tolist() == [2, 3]
    assert select_device_rows(table.drop(columns="device"), name).shape == (4, 4)
    assert len(select_network_rows(table, name)) == 4 and select_network_rows(table, "y").seconds.tolist() == [2, 2]
    assert select_network_rows(table, "y").index.tolist() == [0, 1]
    assert select_network_rows(table[table.device == name], "y") is None and select_network_rows(None, "y") is None
