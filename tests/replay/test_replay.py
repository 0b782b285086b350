"""Published measurements of others, replayed: what part of each tells the rest?

They are not part of the project; a folder `shared/replay` beside the checkout, or the
variable EQUIPOISE_REPLAY, says where they are.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from equipoise.planning import examples_to_target as statistical
from equipoise.planning import measurements as tables
from equipoise.planning import plan
from equipoise.planning import step_time_fit as system
from equipoise.planning.plan import Place
from equipoise.planning.step_time_model import Places

DATA = Path(os.environ.get("EQUIPOISE_REPLAY", Path(__file__).parents[3] / "shared" / "replay"))
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no measurements to replay in {DATA}")


def test_three_batches_tell_the_mlperf_batches_between_them():
    means = []
    for name in ("mlperf-bert", "mlperf-resnet", "mlperf-ssd"):
        runs = tables.statistical(DATA / name / "statistical.csv")
        batches = sorted(runs.global_batch.unique())
        three = [batches[0], batches[len(batches) // 2], batches[-1]]
        curve = statistical.fitted(runs[runs.global_batch.isin(three)])
        logs = np.log(runs.examples).groupby(runs.global_batch).mean()
        errors = [abs(curve.examples(batch) / np.exp(logs[batch]) - 1) for batch in batches if batch not in three]
        assert np.mean(errors) <= 0.10, name
        means.append(np.mean(errors))
    assert np.mean(means) <= 0.08


@pytest.mark.parametrize(("name", "limit"), [("cifar10", 0.12), ("bert", 0.12), ("ncf", 0.18)])
def test_four_workers_tell_sixteen_and_more_of_pollux(name, limit):
    rows = tables.system(DATA / f"pollux-{name}" / "system.csv")
    large = rows[rows.workers >= 16]
    found = system.fitted(rows[rows.workers <= 4])
    assert found.missing(16, 64, int(large.batch.min())) is None
    errors = np.abs(found.seconds(Places.of(large)) / large.seconds - 1)
    assert errors.mean() <= limit


@pytest.mark.parametrize("name", ["movielens", "sentiment140", "squad"])
def test_the_plan_from_half_of_zeus_seeds_is_good_on_the_other_half(name):
    timed = system.fitted(tables.system(DATA / f"zeus-{name}" / "system.csv"))
    runs = tables.statistical(DATA / f"zeus-{name}" / "statistical.csv")
    step = timed.rows.set_index("batch").seconds
    regrets = []
    for draw in range(10):
        seeds = np.random.default_rng(draw).permutation(runs.seed.unique())
        half = runs.seed.isin(seeds[: len(seeds) // 2])
        seen, other = (
            part[part.reached == 1].groupby("global_batch").examples.mean().reindex(step.index).dropna()
            for part in (runs[half], runs[~half])
        )
        seen, other = (values / values.index * step[values.index] for values in (seen, other))
        curve = statistical.fitted(runs[half])
        found = plan.options(timed, curve, [Place(1, 1)], map(int, other.index))
        chosen = plan.best(found)[0].global_batch
        regrets.append(other[chosen] / other[seen.reindex(other.index).idxmin()] - 1)
    assert np.median(regrets) <= 0.03
