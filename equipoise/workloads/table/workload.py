"""Workload of a table: one whose inputs are encoded rows, with the specification that encodes them."""

from dataclasses import dataclass

from equipoise.tables.spec import TableSpec
from equipoise.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class TableWorkload(Workload):
    """Learning task on the rows of a table, which can be published and served."""

    spec: TableSpec
    """columns and label, with the statistics of the training split"""
