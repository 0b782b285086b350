"""Published measurements of others: how well does a part of each predict the rest?

They are not part of the project: they lie in a folder `shared/replay` beside the checkout, or where the environment
variable EQUIPOISE_REPLAY says.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits
from equipoise.planning.examples_to_target import fit_examples_curve
from equipoise.planning.exchanges.exchange_columns import read_runs_by_exchange, read_steps_by_exchange
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest
from equipoise.planning.measurements import read_examples_to_target, read_step_times
from equipoise.planning.plan import ClusterShape, enumerate_options, rank_options
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.planning.step_time_model import StepSettings

DATA = Path(os.environ.get("EQUIPOISE_REPLAY", Path(__file__).parents[3] / "shared" / "replay"))
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no measurements to replay in {DATA}")


def test_three_batches_predict_the_mlperf_batches_between_them():
    means = []
    for name in ("mlperf-bert", "mlperf-resnet", "mlperf-ssd"):
        runs = read_examples_to_target(DATA / name / "statistical.csv")
        batches = sorted(runs.global_batch.unique())
        fitted = [batches[0], batches[len(batches) // 2], batches[-1]]
        curve = fit_examples_curve(runs[runs.global_batch.isin(fitted)])
        logs = np.log(runs.examples).groupby(runs.global_batch).mean()
        errors = [abs(curve.examples_at(batch) / np.exp(logs[batch]) - 1) for batch in batches if batch not in fitted]
        assert np.mean(errors) <= 0.10, name
        means.append(np.mean(errors))
    assert np.mean(means) <= 0.08


@pytest.mark.parametrize(("name", "limit"), [("cifar10", 0.12), ("bert", 0.12), ("ncf", 0.18)])
def test_four_workers_predict_sixteen_and_more_of_pollux(name, limit):
    rows = read_step_times(DATA / f"pollux-{name}" / "system.csv")
    large = rows[rows.workers >= 16]
    fit = fit_step_time(rows[rows.workers <= 4])
    assert fit.missing_measurements(16, 64, int(large.batch.min())) is None
    errors = np.abs(fit.fitted_seconds(StepSettings.from_table(large)) / large.seconds - 1)
    assert errors.mean() <= limit


@pytest.mark.parametrize("name", ["movielens", "sentiment140", "squad"])
def test_plan_from_half_of_the_zeus_seeds_is_good_on_the_other_half(name):
    step_fit = fit_step_time(read_step_times(DATA / f"zeus-{name}" / "system.csv"))
    runs = read_examples_to_target(DATA / f"zeus-{name}" / "statistical.csv")
    step = step_fit.rows.set_index("batch").seconds
    regrets = []
    for draw in range(10):
        seeds = np.random.default_rng(draw).permutation(runs.seed.unique())
        in_first_half = runs.seed.isin(seeds[: len(seeds) // 2])
        first_half, second_half = (
            part[part.reached == 1].groupby("global_batch").examples.mean().reindex(step.index).dropna()
            for part in (runs[in_first_half], runs[~in_first_half])
        )
        first_half, second_half = (values / values.index * step[values.index] for values in (first_half, second_half))
        curve = fit_examples_curve(runs[in_first_half])
        options = enumerate_options(step_fit, curve, [ClusterShape(1, 1)], map(int, second_half.index))
        chosen = rank_options(options)[0].global_batch
        best_in_first_half = first_half.reindex(second_half.index).idxmin()
        regrets.append(second_half[chosen] / second_half[best_in_first_half] - 1)
    assert np.median(regrets) <= 0.03


@pytest.mark.parametrize("name", ["movielens", "sentiment140", "squad"])
def test_most_frugal_batch_of_the_zeus_tables_is_found_from_half_of_the_seeds(name):
    system = read_steps_by_exchange(DATA / f"zeus-{name}" / "system.csv")
    runs = read_runs_by_exchange(DATA / f"zeus-{name}" / "statistical.csv")
    joules = system.set_index("batch").joules
    for draw in range(4):
        seeds = np.random.default_rng(draw).permutation(runs.seed.unique())
        in_first_half = runs.seed.isin(seeds[: len(seeds) // 2])
        request = PlanRequest(system=system, statistical=runs[in_first_half].reset_index(drop=True))
        document = build_device_plan(request, ExchangeRequest(), CostLimits()).document
        chosen = document.energy_front[-1].global_batch
        all_runs = runs[runs.reached == 1].groupby("global_batch").examples.mean().reindex(joules.index).dropna()
        energy = all_runs / all_runs.index * joules[all_runs.index]
        of_chosen = np.exp(np.interp(np.log(chosen), np.log(energy.index), np.log(energy)))  # it may lie between two
        assert of_chosen <= 1.05 * energy.min(), (chosen, energy.idxmin())
