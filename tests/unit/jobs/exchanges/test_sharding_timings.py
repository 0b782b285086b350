"""Which shardings a sweep times where whole models do not fit, with step times that are given."""

from dataclasses import replace

import pytest

from equipoise.errors import EquipoiseError
from jobs.ray_tune.exchanges.exchange_sweep import ExchangeSweep
from jobs.ray_tune.exchanges.plan_memory import limit_memory
from tests.unit.jobs.exchanges.test_plan_exchanges import FAST, build_step_timing, build_sweep
from tests.unit.planning.sharding.test_sharding_verdicts import build_limit

ONLY_FULL, ALL_BUT_WHOLE, EVERYTHING = 2e9, 3.5e9, 20e9  # bytes of a worker, and what fits in them


class SweepOfKnownSteps(ExchangeSweep):
    """Sweep that takes the steps of shardings from a dictionary; those that are missing cannot be timed."""

    ratios: dict[str, float]
    timed: list[str]

    def time_steps(self, exchanges, seconds=4.0):
        (setting,) = exchanges
        self.timed.append(setting.exchange)
        if setting.exchange not in self.ratios:
            raise EquipoiseError("memory-exceeded", "a worker has run out of memory")
        row = build_step_timing(setting.exchange, self.ratios[setting.exchange], (1, setting.workers, setting.batch))
        timings = replace(self.facts.timings, steps=[*self.facts.timings.steps, row])
        self.facts = replace(self.facts, timings=timings)


def time_shardings(tmp_path, limit, ratios, sweep=None):
    if sweep is None:
        sweep = build_sweep(FAST, tmp_path, ())
        sweep.__class__ = SweepOfKnownSteps
        sweep.facts = replace(sweep.facts, memory=build_limit(limit))
    sweep.ratios, sweep.timed = ratios, []
    runs = FAST.measure_exact_runs().drop(columns=["exchange", "workers"])
    exact = limit_memory(sweep.build_request(runs), sweep.facts)
    sweep.time_shardings(sweep.fit_exact(runs), exact, sweep.facts.memory)
    return sweep


@pytest.mark.parametrize(
    ("limit", "ratios", "timed"),
    [
        (EVERYTHING, {}, []),
        (ONLY_FULL, {"full": 3.0}, ["full"]),
        (ALL_BUT_WHOLE, {"optimizer": 1.0}, ["optimizer"]),
        (ALL_BUT_WHOLE, {"optimizer": 9.0, "full": 9.5}, ["optimizer", "full"]),  # the other one may be faster
    ],
)
def test_shardings_are_timed_until_the_one_to_be_used_was(tmp_path, limit, ratios, timed):
    sweep = time_shardings(tmp_path, limit, ratios)
    assert sweep.timed == timed
    assert time_shardings(tmp_path, limit, ratios, sweep).timed == []  # the same command goes on


def test_a_sharding_that_cannot_be_timed_leaves_the_others_to_be(tmp_path, capsys):
    sweep = time_shardings(tmp_path, ALL_BUT_WHOLE, {"full": 2.0})
    assert sweep.timed == ["optimizer", "full"]
    assert "cannot time optimizer, its closed form decides: a worker has run out of memory" in capsys.readouterr().out


def test_a_small_budget_gives_shardings_a_small_share(tmp_path):
    sweep = build_sweep(FAST, tmp_path, ())
    assert sweep.sharding_seconds == 4.0
    small = ExchangeSweep(sweep.facts, sweep.timings, sweep.step_fit, sweep.trials, 20.0)
    assert small.sharding_seconds == pytest.approx(1.0)
