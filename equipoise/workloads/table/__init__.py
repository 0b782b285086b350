"""Workload table: your own CSV or parquet files, one column of which is predicted from the others."""

from importlib import import_module

from equipoise.config import TrainConfig
from equipoise.workloads.base import Workload


def table(config: TrainConfig) -> Workload:
    """Build the workload of --data and --label, with pandas, which other workloads need not wait for."""
    workload: Workload = import_module("equipoise.workloads.table.build").build_table_workload(config)
    return workload
