"""The plan of a sweep within a limit of memory: whole models where they fit, else a sharding by closed forms."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.build_document import build_plan_document
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.sharding.sharding_verdicts import add_sharding_verdicts
from equipoise.planning.sharding.worker_limit import WorkerLimit
from tests.support.exchange_world import ExchangeWorld, fit_world
from tests.unit.jobs.exchanges.test_plan_exchanges import FAST, build_request

SIZES = ModelSizes(
    parameter_bytes=10**9, trainable_bytes=10**9, largest_unit_bytes=10**8, example_bytes=0, kept_bytes=0.0,
    kept_bytes_per_example=1e6, pass_bytes=0.0, pass_bytes_per_example=2e6,
)  # fmt: skip
CONFIG = TrainConfig(workload="digits", optimizer="adamw").with_defaults()
STATE = {"": 4.0, "optimizer": 2.5, "full": 1.0}
"""copies of the weights on each of four workers: weights, gradients and two moments"""


def build_limit(limit, config=CONFIG):
    return WorkerLimit(limit_bytes=limit, sizes=SIZES, config=config)


def plan(limit, world=FAST, config=CONFIG):
    """Return the plan within a limit of bytes, and the verdicts by way of exchange."""
    fits, costs, runs = fit_world(world)
    own = build_limit(limit, config)
    request = build_request(world, runs)
    exact = replace(request, system=own.fill_peaks(request.system), memory_bytes=limit)
    document = build_plan_document(exact, fits.step_fit, fits.curve)
    document = add_sharding_verdicts(document, exact, fits, costs, own)
    return document, {verdict.exchange: verdict for verdict in document.exchanges}


def peak(name, batch):
    """Return the peak of one of four workers by arithmetic."""
    return 1e9 * STATE[name] + 2e6 * batch + (2e8 if name == "full" else 0)


@pytest.mark.parametrize(("name", "batch"), [("", 64), ("optimizer", 16), ("full", 128)])
def test_peak_of_a_worker_is_its_state_and_activations(name, batch):
    limit = build_limit(1.0)
    assert limit.predict_peak(name, 4, batch) == pytest.approx(peak(name, batch))
    steps = FAST.measure_steps().assign(peak_bytes=limit.predict_peak("", 4, batch) + 5e7)
    assert limit.predict_peak(name, 4, batch, steps) == pytest.approx(peak(name, batch) + 5e7)


def test_model_stays_whole_where_it_fits():
    document, verdicts = plan(20e9)
    assert document.plan.exchange == "" and document.plan.sharding == "none"
    assert {verdict.verdict for verdict in verdicts.values()} <= {"slower", "no gain"}
    assert "the whole model needs" in verdicts["full"].why and "of 20 GB a worker" in verdicts["full"].why
    assert verdicts["full"].peak_bytes < verdicts["optimizer"].peak_bytes < 20e9


def test_model_is_divided_where_no_whole_one_fits():
    document, verdicts = plan(2e9)
    assert document.plan.exchange == document.plan.sharding == "full" and document.runner_up is None
    assert verdicts["full"].verdict == "use" and verdicts["full"].peak_bytes <= 2e9
    assert verdicts["optimizer"].verdict == "does not fit" and "of 2 GB a worker" in verdicts["optimizer"].why
    assert "the whole model needs" in document.plan.why


def test_nothing_fits_in_too_little():
    document, verdicts = plan(1e8)
    assert document.plan is None and {verdict.verdict for verdict in verdicts.values()} == {"does not fit"}


def test_smaller_batches_of_whole_models_win_where_the_exchange_is_slow():
    slow = ExchangeWorld(rate=2e7)
    document, verdicts = plan(peak("", 64) * 1.001, world=slow)
    assert document.plan.exchange == "" and document.plan.batch <= 64
    assert {verdict.verdict for verdict in verdicts.values()} <= {"slower", "no gain"}


def test_optimizer_of_whole_matrices_leaves_full_out():
    _, verdicts = plan(20e9, config=replace(CONFIG, optimizer="adafactor"))
    assert set(verdicts) == {"optimizer"}
