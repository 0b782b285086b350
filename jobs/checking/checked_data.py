"""Outcome of a check: the verdict, and what its page shows of the data."""

from collections.abc import Callable
from dataclasses import dataclass

from dashboards.page import Page
from equipoise.drift.diagnosis.verdict import DatasetVerdict


@dataclass(frozen=True, eq=False)
class CheckedData:
    """Verdict on images, rows or texts, and how the page on it is built."""

    verdict: DatasetVerdict
    build_page: Callable[[DatasetVerdict], Page]
    """builds the page of the verdict, which then names the bundle and the data"""
