"""Measurements of a sweep to three targets whose curves are known."""

import pandas as pd

from equipoise.planning.build_document import PlanRequest

CURVES = {2.4: (2_000, 60), 2.2: (6_000, 150), 2.0: (20_000, 400)}
"""fewest examples and critical batch by target, the easiest first"""
BATCHES = (16, 64, 256, 1024)


def build_targets_request() -> PlanRequest:
    """Build the measurements of trials that follow the curves, on a machine with a fixed time per step."""
    rows = [
        (target, batch, 0.01 * batch**0.5, seed, fewest * (1 + batch / critical) * (1 + 0.02 * (seed - 1)), 1)
        for target, (fewest, critical) in CURVES.items()
        for batch in BATCHES
        for seed in range(3)
    ]
    crossings = pd.DataFrame(rows, columns=["target", "global_batch", "lr", "seed", "examples", "reached"])
    steps = pd.DataFrame(
        [(1, 1, batch, 0.01 + 1e-4 * batch) for batch in BATCHES], columns=["nodes", "workers", "batch", "seconds"]
    )
    hardest = crossings[crossings.target == 2.0].drop(columns="target").reset_index(drop=True)
    return PlanRequest(system=steps, statistical=hardest, targets=crossings)
