"""A script whose workload is in none of its modules, as in a notebook: sweep it into a folder, and print the plan."""

import sys

import torch
from torch import nn

import equipoise

HIDDEN_UNITS = 16


def make_stripes(config: equipoise.TrainConfig) -> equipoise.Workload:
    """Build a workload that tells apart on which side of a plane a point lies."""

    def build_split(count: int, seed: int) -> equipoise.Split:
        points = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
        return equipoise.Split(points, (points[:, :3].sum(1) > 0).long())

    return equipoise.Workload(
        name="stripes",
        train=build_split(2000, 0),
        validation=build_split(500, 1),
        reference=build_split(100, 2),
        test=build_split(300, 3),
        model=lambda: nn.Sequential(nn.Linear(8, HIDDEN_UNITS), nn.ReLU(), nn.Linear(HIDDEN_UNITS, 2)),
        target=0.95,
        loss=nn.functional.cross_entropy,
        metric=lambda outputs, labels: (outputs.argmax(1) == labels).double(),
    )


if __name__ == "__main__":
    plan = equipoise.sweep(
        make_stripes, out=sys.argv[1], workers=[1, 2], batch_size="8:16", lr="0.1:0.1",
        exhaustive=True, seeds=1, eval_every=100, trials=sys.argv[2], exchanges="none",
    )  # fmt: skip
    print(f"{plan.setup.workload} {plan.status} {plan.plan.workers} x {plan.plan.batch}")
