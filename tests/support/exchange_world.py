"""A simulated workload on a simulated network: step times, examples and their ratios by closed forms, with noise."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.exact_fits import fit_exact_sums
from equipoise.planning.exchange_choice.exchange_bounds import DEFAULT_CANDIDATES, bound_exchanges, select_survivors
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts, MatrixFacts
from equipoise.planning.exchange_choice.next_trial import suggest_exchange_trial
from equipoise.planning.exchange_choice.store_costs import StoreFacts
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness

SIZE = 1e7
MATRICES = MatrixFacts(6000, 1e5)
ENCODE_SECONDS = {"bf16": 0.001, "int8": 0.03, "powersgd:4": 0.02, "topk:0.01": 0.08}
BATCHES = (64, 128, 256, 512)
SHAPES = ((1, 1), (2, 2), (3, 3), (4, 4))  # one worker on each node
RUN_COLUMNS = ["exchange", "workers", "global_batch", "lr", "seed", "examples", "reached"]
TRIAL_COLUMNS = [*RUN_COLUMNS[:5], "momentum", *RUN_COLUMNS[5:]]
MOMENTUM = 0.9  # of exact sums


@dataclass(frozen=True, kw_only=True)
class ExchangeWorld:
    """Truth of a workload and its network, and what runs on it measure."""

    rate: float = 2e8
    """bits per second"""
    delay: float = 2e-4
    """seconds a message"""
    critical_interval: float = 80.0
    critical_staleness: float = 6.0
    """with momentum 0; with that of exact sums a quarter of it"""
    relative_seconds: tuple[float, ...] = ()
    """seconds that each of four workers computes over those of the slowest one; empty if they are equal"""
    ratios: tuple[tuple[str, float], ...] = (("powersgd:4", 1.15), ("int8", 1.1), ("topk:0.01", 1.6))
    """examples ratios of compressions; 1 for others"""
    noise: float = 0.08
    """standard deviation of log examples between seeds"""
    lr_octaves: float = -1.0
    """best learning rate with local steps, in octaves from that of exact sums"""
    diverging: tuple[str, ...] = ()
    """ways of exchange that never reach the target"""
    draw: int = 0
    """number of the draw of all noise between seeds"""

    def step_seconds(self, name, workers, batch):
        method = parse_exchange(name)
        compute, delays = 0.01 + 0.0004 * batch, 2 * (workers - 1) * self.delay
        volume = 2 * (workers - 1) / workers * 8 * SIZE / self.rate
        if method.is_exact:
            return compute + delays + volume
        if method.has_store:
            return self.store_step_seconds(method, workers, compute)
        if method.interval_family:
            return compute + (delays + 2 * volume) / method.interval
        rank = MATRICES.rows_and_columns * 16 + MATRICES.other_bytes
        shares = {"bf16": 0.5, "int8": 0.25, "powersgd:4": rank / SIZE, "topk:0.01": 0.01 * workers}
        rounds = {"powersgd:4": 2.0, "topk:0.01": 0.5}.get(name, 1.0)
        return compute + rounds * delays + shares[name] * volume + ENCODE_SECONDS[name]

    def measure_seconds_by_worker(self):
        """Return the seconds that each of four workers computes, by batch."""
        own = self.relative_seconds
        return {batch: tuple((0.01 + 0.0004 * batch) * share for share in own) for batch in (16, 64, 256)}

    def store_step_seconds(self, method, workers, compute):
        """Return the seconds of a step of equal parts on all workers."""
        push = 2 * self.delay + 2 * (workers - 1) / workers * 8 * SIZE / self.rate
        if method.sync == "server":
            return compute + push
        relative = self.relative_seconds if len(self.relative_seconds) == workers else (1.0,) * workers
        periods = [compute * share + push for share in relative]
        rate = min(sum(1 / period for period in periods), (method.staleness + workers) / max(periods))
        return workers / rate

    def ratio(self, name, workers, momentum=0.0):
        method = parse_exchange(name)
        if method.sync == "async":
            share = 1.0 if momentum == 0.0 else 0.25
            return 1 + mean_staleness(workers, method.staleness) / (share * self.critical_staleness)
        drift = (method.interval - 1) * (1 - 1 / workers) / self.critical_interval
        return dict(self.ratios).get(method.compression, 1.0) * (1 + drift)

    def exact_examples(self, batch):
        return 20_000 * (1 + batch / 400)

    def run(self, trial):
        """Return the row of a trial, with the penalty of a learning rate away from the best one."""
        exchange, workers, batch, lr, seed, momentum = trial
        best = 0.1 * np.sqrt(batch / 64) * 2 ** (self.lr_octaves if parse_exchange(exchange).interval > 1 else 0.0)
        best *= 4.0 if momentum == 0.0 else 1.0
        rng = np.random.default_rng([batch, round(lr * 1e6), seed, workers, self.draw, *exchange.encode()])
        slowdown = np.exp(0.25 * np.log2(lr / best) ** 2 + self.noise * rng.standard_normal())
        if exchange in self.diverging:
            return (*trial, 3 * self.exact_examples(batch), 0)
        return (*trial, self.exact_examples(batch) * self.ratio(exchange, workers, momentum) * slowdown, 1)

    def measure_steps(self):
        rng = np.random.default_rng(0)
        rows = [
            (nodes, workers, batch, self.step_seconds("", workers, batch) * np.exp(0.01 * rng.standard_normal()))
            for nodes, workers in SHAPES
            for batch in (16, 32, 64, 128, 256)
        ]
        return pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]).assign(gradient_bytes=SIZE)

    def measure_exchanges(self):
        """Return the table of sums that were timed alone."""
        rows = [
            (nodes, workers, "sum", share, 2 * (workers - 1) * (self.delay + share * 8 * SIZE / self.rate / workers))
            for nodes, workers in SHAPES[1:]
            for share in (0.001, 0.1, 1.0)
        ]
        return pd.DataFrame(rows, columns=["nodes", "workers", "kind", "share", "seconds"])

    def measure_exact_runs(self, seeds=3):
        trials = [
            ("", 1, batch, round(0.1 * np.sqrt(batch / 64), 6), seed, None)
            for batch in BATCHES
            for seed in range(seeds)
        ]
        return build_runs(map(self.run, trials))

    def true_seconds(self, name, workers, global_batch):
        step = self.step_seconds(name, workers, global_batch // workers)
        return self.exact_examples(global_batch) * self.ratio(name, workers) / global_batch * step


def build_runs(rows):
    """Build the table of runs; those with the momentum of exact sums have none in it."""
    return pd.DataFrame(list(rows), columns=TRIAL_COLUMNS).astype({"momentum": float})


@cache
def fit_exact_world(rate, delay, noise, seeds, draw):
    """Return the fits of a world's exact sums, which do not depend on its other ways of exchange."""
    world = ExchangeWorld(rate=rate, delay=delay, noise=noise, draw=draw)
    runs = world.measure_exact_runs(seeds)
    request = PlanRequest(system=world.measure_steps(), exchange=world.measure_exchanges(), statistical=runs)
    return fit_exact_sums(request)


def fit_world(world, seeds=3):
    """Return the fits of a world's exact sums, its costs and its runs."""
    fits = fit_exact_world(world.rate, world.delay, world.noise, seeds, world.draw)
    store = StoreFacts(seconds_by_worker={4: world.measure_seconds_by_worker()} if world.relative_seconds else {})
    costs = ExchangeCosts(fit=fits.step_fit, encode_seconds=ENCODE_SECONDS, matrices=MATRICES, store=store)
    return fits, costs, world.measure_exact_runs(seeds)


def try_exchanges(world, seeds=3, names=DEFAULT_CANDIDATES):
    """Run the trials of a sweep for ways of exchange; return fits, costs, all runs, and the trials."""
    fits, costs, runs = fit_world(world, seeds)
    survivors, trials = select_survivors(bound_exchanges(fits, costs, names)), []
    survivors = [bound for bound in survivors if bound.needs_trials]
    while trial := suggest_exchange_trial(costs, survivors, runs, num_trials=len(trials), momentum=MOMENTUM):
        trials.append(trial)
        runs = pd.concat([runs, build_runs([world.run(trial)])], ignore_index=True)
    return fits, costs, runs, trials
