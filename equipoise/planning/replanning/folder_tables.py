"""Tables of a sweep's folder as a request for a plan."""

from pathlib import Path

from equipoise.planning.build_document import PlanRequest, read_request
from equipoise.planning.measurements import TARGETS_TABLE


def read_sweep_request(folder: Path) -> PlanRequest:
    """Read the tables of a sweep as a request for a plan."""
    exchange, targets = folder / "exchange.csv", folder / TARGETS_TABLE
    return read_request(
        system=folder / "system.csv",
        exchange=exchange if exchange.exists() else None,
        statistical=folder / "statistical.csv",
        targets=targets if targets.exists() else None,
    )
