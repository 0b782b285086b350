"""Plans within limits that are moved: the same as those of jobs.plan, from fits that are made once."""

from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.planning.build_document import fit_step_times, read_request
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits, DevicePrices
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest
from equipoise.planning.replanning import fit_memory
from equipoise.planning.replanning.link_change import LinkChange
from equipoise.planning.replanning.replanner import PlanLimits, Replanner
from equipoise.planning.step_time_model import StepSettings, step_seconds
from tests.support.sweep_folders import write_statistical_csv, write_system_csv

NODES_TABLE = "nodes,workers,batch,seconds,gradient_bytes\n" + "".join(
    f"{nodes},{workers},{batch},{0.01 + 0.001 * batch + 2 * (workers - 1) * (0.002 + 0.02 / workers)},1e7\n"
    for nodes, workers in ((1, 1), (2, 2), (3, 3), (4, 4))
    for batch in (16, 32, 64, 128)
)
"""one worker a node: 2 ms a message, and 20 ms for 10 MB, which is 4 Gbit/s"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def request_of_one_node(folder):
    return read_request(
        system=write_system_csv(folder / "system.csv"), statistical=write_statistical_csv(folder / "statistical.csv")
    )


@pytest.fixture(scope="module")
def network(folder):
    (folder / "nodes.csv").write_text(NODES_TABLE)
    request = read_request(system=folder / "nodes.csv", statistical=write_statistical_csv(folder / "statistical.csv"))
    return Replanner(request)


def test_plans_within_limits_are_those_of_jobs_plan(request_of_one_node):
    replanner = Replanner(request_of_one_node)
    cost = CostLimits(prices=DevicePrices(otherwise=3.0), budget_dollars=0.05)
    for limits in (PlanLimits(), PlanLimits(deadline_seconds=25.0), PlanLimits(cost=cost)):
        wanted = replace(request_of_one_node, deadline_seconds=limits.deadline_seconds)
        expected = build_device_plan(wanted, ExchangeRequest(), limits.cost).document
        assert replanner.build_plan(limits).document == expected
    assert expected.plan is None or expected.plan.dollars <= 0.05


def test_tables_are_fitted_once(request_of_one_node, monkeypatch):
    replanner = Replanner(request_of_one_node)
    first = replanner.build_plan(PlanLimits()).document
    monkeypatch.setattr("equipoise.planning.build_document.fit_step_time", None)  # a call of it would fail
    monkeypatch.setattr("equipoise.planning.build_document.fit_examples_curve", None)
    slowest = max(option.seconds.value for option in first.options)
    cheap = replanner.build_plan(PlanLimits(deadline_seconds=slowest)).document
    assert cheap.plan.worker_seconds <= first.plan.worker_seconds


def test_a_slower_network_never_makes_a_plan_faster(network):
    ranges = network.find_ranges()
    assert ranges.bits_per_second.measured == pytest.approx(4e9, rel=0.05)
    assert ranges.delay_seconds.measured == pytest.approx(2e-3, rel=0.05)
    rates = [4e10, 4e9, 4e8, 4e7]
    fastest = [network.build_plan(PlanLimits(links=LinkChange(bits_per_second=rate))).document.plan for rate in rates]
    seconds = [plan.seconds.value for plan in fastest]
    assert seconds == sorted(seconds) and seconds[0] < seconds[-1]
    assert fastest[-1].workers == 1  # 80 Mbit/s a gradient: not worth a second worker
    delays = [network.build_plan(PlanLimits(links=LinkChange(delay_seconds=delay))).document for delay in (1e-4, 0.2)]
    assert delays[0].plan.seconds.value < delays[1].plan.seconds.value
    assert not any(setting.measured for document in delays for setting in document.front)


def test_steps_on_another_network_are_those_of_its_closed_form(network):
    moved = fit_step_times(replace(network.request, links=LinkChange(bits_per_second=1e9, delay_seconds=5e-3)))
    settings = StepSettings.from_table(moved.rows)
    expected = 0.01 + 0.001 * settings.batch + 2 * (settings.workers - 1) * (5e-3 + 0.08 / settings.workers)
    assert moved.rows.seconds.to_numpy() == pytest.approx(expected, rel=0.02)
    assert step_seconds(moved.form, moved.parameters, settings) == pytest.approx(expected, rel=0.02)
    assert moved.parameter_draws[0]["between_volume"] == pytest.approx(0.08, rel=0.1)


def test_the_measured_network_changes_no_plan(network):
    own = network.find_ranges()
    links = LinkChange(bits_per_second=own.bits_per_second.measured, delay_seconds=own.delay_seconds.measured)
    same, measured = (network.build_plan(PlanLimits(links=each)).document.plan for each in (links, LinkChange()))
    assert same.seconds.value == pytest.approx(measured.seconds.value, rel=1e-6)


def test_more_and_fewer_nodes_than_measured(network):
    ranges = network.find_ranges()
    assert ranges.measured_nodes == 4 and set(ranges.nodes) >= {1, 2, 4, 8}
    one, eight = (network.build_plan(PlanLimits(max_nodes=nodes)).document for nodes in (1, 8))
    assert {option.nodes for option in one.options} == {1}
    assert max(option.nodes for option in eight.options) == 8
    assert all(shape.nodes <= 8 for shape in eight.system.predictions)


def test_what_was_not_measured_has_no_range(request_of_one_node):
    ranges = Replanner(request_of_one_node).find_ranges()
    assert ranges.bits_per_second is None  # no column gradient_bytes
    assert ranges.nodes == (1,) and ranges.budget_dollars(None) is None
    budget = ranges.budget_dollars(3.6)
    assert budget.low == pytest.approx(ranges.worker_seconds.low / 1000)


def test_a_memory_forgets_what_was_used_longest_ago():
    memory, computed = fit_memory.FitMemory(max_results=2), []

    def recall(key):
        return memory.recall(key, (), lambda: computed.append(key) or key)

    assert [recall(key) for key in "abacab"] == [*"abacab"]
    assert computed == [*"abcb"]  # b was forgotten for c, a never
    tables = [read_request(system=Path("tests/data/digits/system.csv")).system for _ in range(2)]
    assert fit_memory.digest_table(tables[0]) == fit_memory.digest_table(tables[1])
    assert fit_memory.digest_table(tables[0]) != fit_memory.digest_table(tables[0].assign(seconds=1.0))
