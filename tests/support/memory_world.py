"""A simulated workload whose workers have little memory: step times, peaks and examples by closed forms, with noise."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan

NAMES = ("", "optimizer", "full")
WORKERS, BATCHES, GLOBAL_BATCHES = (1, 2, 4), (8, 16, 32, 64, 128), (32, 64, 128, 256, 512)
MEASURED_PEAKS = (16, 64)
"""batches whose peak is in the table; those of others follow"""
EXACT_SHARE, SHARDED_SHARE = 1.0, 1.5  # of the bytes of an exact exchange


@dataclass(frozen=True, kw_only=True)
class MemoryWorld:
    """Truth of a workload and its workers, and what runs of it measure."""

    weight_bytes: float = 4e9
    unit_bytes: float = 2e8
    """largest block"""
    example_bytes: float = 2e7
    """activations of an example"""
    moments: int = 2
    exchange_seconds: float = 0.04
    """seconds to sum a gradient over very many workers"""
    critical_batch: float = 200.0
    noise: float = 0.02
    """standard deviation of the log of step times; of examples it is twice as large"""
    draw: int = 0
    names: tuple[str, ...] = NAMES
    """ways of exchange that are timed"""

    def peak_bytes(self, name, workers, batch):
        """Return the most bytes of a worker."""
        state = {
            "": 2 + self.moments,
            "optimizer": 2 + self.moments / workers,
            "full": (2 + self.moments) / workers,
        }[name]
        units = 2 * self.unit_bytes if name == "full" and workers > 1 else 0.0
        return state * self.weight_bytes + units + batch * self.example_bytes

    def step_seconds(self, name, workers, batch):
        """Return the seconds of a step."""
        share = SHARDED_SHARE if name else EXACT_SHARE
        return 0.02 + 0.001 * batch + share * self.exchange_seconds * (workers - 1) / workers

    def examples(self, global_batch):
        """Return the examples to the target."""
        return 20_000 * (1 + global_batch / self.critical_batch)

    def seconds(self, name, workers, batch):
        """Return the seconds to the target."""
        return self.examples(workers * batch) / (workers * batch) * self.step_seconds(name, workers, batch)

    def find_best(self, limit):
        """Return the way of exchange, workers and batch that are truly the fastest within a limit of bytes."""
        settings = [
            (name, workers, global_batch // workers)
            for name in NAMES
            for workers in WORKERS
            for global_batch in GLOBAL_BATCHES
            if (workers > 1 or not name) and BATCHES[0] <= global_batch // workers <= BATCHES[-1]
        ]
        fitting = [setting for setting in settings if self.peak_bytes(*setting) <= limit]
        return min(fitting, key=lambda setting: self.seconds(*setting))

    def measure_steps(self):
        """Return the table of step times, with the peaks of some batches."""
        rng = np.random.default_rng(self.draw)
        rows = [
            {
                "nodes": 1,
                "workers": workers,
                "batch": batch,
                "seconds": self.step_seconds(name, workers, batch) * np.exp(self.noise * rng.standard_normal()),
                "exchange": name,
                "peak_bytes": self.peak_bytes(name, workers, batch) * np.exp(0.005 * rng.standard_normal())
                if batch in MEASURED_PEAKS
                else np.nan,
            }
            for name in self.names
            for workers in WORKERS
            for batch in BATCHES
            if workers > 1 or not name
        ]
        return pd.DataFrame(rows)

    def measure_runs(self):
        """Return the table of training runs."""
        rng = np.random.default_rng(self.draw + 1000)
        rows = [
            (batch, 0.1, seed, self.examples(batch) * np.exp(2 * self.noise * rng.standard_normal()), 1)
            for batch in GLOBAL_BATCHES
            for seed in range(3)
        ]
        return pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached"])

    def plan(self, limit):
        """Return the plan that the tables lead to within a limit of bytes."""
        request = PlanRequest(system=self.measure_steps(), statistical=self.measure_runs(), memory_bytes=limit)
        return build_exchange_plan(request, ExchangeRequest()).document
