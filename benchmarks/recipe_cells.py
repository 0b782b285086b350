"""Cells of the recipe table: workloads, global batches and recipes."""

import math
from dataclasses import dataclass
from typing import Any

from equipoise.config import TrainConfig

RATE_EXPONENT = 0.25  # of the batch, where a search begins: recorded grids have 0 (digits) to 0.5 (patches)
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableWorkload:
    """Workload of the table, and the batches that it is tried at."""

    options: dict[str, Any]
    batches: tuple[int, ...]
    """global batches, of a quarter of the critical batch, then 1, 4 and 16 times it"""
    caps: tuple[int, ...]
    """examples after which a run ends, by batch"""
    rates: dict[str, float]
    """learning rates to begin with at the critical batch, by optimizer"""
    warmup: int
    """examples over which the rate rises in the recipe that has a warm-up"""
    budget: int = 0
    """examples up to which final runs go on beyond the target, so that the gap is that of equal examples"""
    tries: int = 4
    """learning rates that are tried in each cell"""
    validation: int = 100_000
    """validation examples that are used, at most"""
    is_text: bool = False


WORKLOADS = {
    "digits": TableWorkload(
        options={"workload": "digits", "eval_every": 256},
        batches=(16, 64, 256, 1024),
        caps=(30_000, 30_000, 50_000, 60_000),
        rates={"sgd": 0.06, "lars": 0.14, "lamb": 0.014, "adamw": 0.007},
        warmup=5 * 1078,
        budget=30_000,
    ),
    "patches": TableWorkload(
        options={"workload": "tests.support.patch_data:load_photo_patches", "target": 0.6, "eval_every": 256},
        batches=(20, 78, 312, 1248),  # a sixteenfold of 98 would be more than the 1,263 training examples
        caps=(30_000, 40_000, 60_000, 60_000),
        rates={"sgd": 0.03, "lars": 0.1, "lamb": 0.01, "adamw": 0.004},
        warmup=5 * 1263,
    ),
    "text": TableWorkload(
        options={"workload": "text", "model": "gpt:1x32", "target": 2.8, "eval_every": 192, "optimizer": "adamw"},
        batches=(4, 12, 48, 192),
        caps=(4_000, 4_000, 6_000, 12_000),
        rates={"adamw": 0.01, "lars": 0.4, "lamb": 0.02},
        warmup=1000,
        validation=400,
        is_text=True,
    ),
}
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {},
    "lars": {"optimizer": "lars", "trust": 0.05},
    "lamb": {"optimizer": "lamb"},
    "linear, warm-up": {},
    "one-cycle": {"schedule": "one-cycle"},
    "grow auto": {"grow_batch": "auto", "noise_scale_every": 10},
    "adamw": {"optimizer": "adamw"},
    "average": {"average_weights": 0.9},
    "mixup": {"mixup": 0.2},
    "smoothing": {"label_smoothing": 0.1},
    "warm-up": {},
}
"""options of each recipe beside the plain ones, in the order in which they are tried"""


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """A workload, a global batch and a recipe."""

    workload: str
    batch: int
    recipe: str
    length: int | None = None
    """examples of a run with a schedule, which sets its end"""

    @property
    def setting(self) -> TableWorkload:
        """Batches, caps and rates of the workload."""
        return WORKLOADS[self.workload]

    @property
    def cap(self) -> int:
        """Examples after which a run ends."""
        return self.length or self.setting.caps[self.setting.batches.index(self.batch)]

    @property
    def key(self) -> Row:
        """Values by which the rows of this cell are found."""
        return {"workload": self.workload, "batch": self.batch, "recipe": self.recipe, "length": self.length}

    def build_config(self, lr: float, seed: int) -> TrainConfig:
        """Build the options of a run."""
        plain = {"warmup": 0.0, "noise_scale_every": 0, "weight_decay": 0.0, "max_examples": self.cap}
        recipe = dict(RECIPES[self.recipe])
        if "warm-up" in self.recipe:
            recipe["warmup_examples"] = self.setting.warmup
            plain.pop("warmup")
        return TrainConfig(**{**self.setting.options, **plain, **recipe}, batch_size=self.batch, lr=lr, seed=seed)

    @property
    def first_rate(self) -> float:
        """Learning rate that the search begins with, where no smaller batch has found a better one."""
        options = self.setting.options | RECIPES[self.recipe]
        relative = self.batch / self.setting.batches[1]
        return self.setting.rates[options.get("optimizer", "sgd")] * math.pow(relative, RATE_EXPONENT)
