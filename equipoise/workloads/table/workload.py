"""Workload of a table: one whose inputs are encoded rows, with the specification that encodes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from equipoise.tables.spec import TableSpec
from equipoise.type_aliases import AnyArray
from equipoise.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class TableWorkload(Workload):
    """Learning task on the rows of a table, which can be published and served."""

    spec: TableSpec
    """columns and label, with the statistics of the training split"""
    read_columns: Callable[[], Mapping[str, Mapping[str, AnyArray]]]
    """reads the columns of the splits `validation` and `reference` again, as rows have them: with what inputs do not
    tell apart, such as a missing text and an unknown one; training does not need them in memory"""
