"""Meter of the energy that one worker accounts for: its GPU, and on the first worker of a node the processors too."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch

from equipoise.energy_meters.nvml_counter import open_nvml_counter
from equipoise.energy_meters.rapl_counters import POWERCAP_FOLDER, open_rapl_counters


class EnergyCounter(Protocol):
    """Counter of joules that only grows."""

    def read_joules(self) -> float:
        """Return the joules since some moment."""


class WorkerMeter:
    """Sum of the counters that one worker reads; no counter is read by two workers of a job."""

    def __init__(self, counters: Sequence[EnergyCounter]) -> None:
        self.counters = counters
        self.start_joules = 0.0

    def begin(self) -> None:
        """Begin to count joules anew, as a lap begins."""
        self.start_joules = self._read_sum()

    def read_joules(self) -> float:
        """Return the joules since `begin`."""
        return self._read_sum() - self.start_joules

    def _read_sum(self) -> float:
        return sum(counter.read_joules() for counter in self.counters)


def open_worker_meter(device: torch.device, rank: int, folder: Path = POWERCAP_FOLDER) -> WorkerMeter:
    """Open the counters of a worker; the meter has none where the machine tells no energy."""
    counters: list[EnergyCounter] = []
    if is_first_on_node(rank, os.environ):
        counters += open_rapl_counters(folder)
    if device.type == "cuda" and (gpu := open_nvml_counter(f"GPU-{torch.cuda.get_device_properties(device).uuid}")):
        counters.append(gpu)
    return WorkerMeter(counters)


def is_first_on_node(rank: int, environment: Mapping[str, str]) -> bool:
    """Return whether a worker is the first of its node: by its local rank, or as the first of all without one."""
    return environment.get("LOCAL_RANK", str(rank)) == "0"
