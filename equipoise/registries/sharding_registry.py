"""What each worker holds of the model (`--sharding`), by name, and the numbers of workers that each can run on.

`equipoise.training.sharding` runs them; without it, their names and limits are known here.
"""

from typing import Literal, NamedTuple, get_args

from equipoise.errors import EquipoiseError
from equipoise.registries.exchange_registry import is_whole_number

ShardingKind = Literal["none", "optimizer", "full", "tensor", "pipeline"]
PipelineSchedule = Literal["1f1b", "gpipe"]
WHOLE_MATRIX_OPTIMIZERS = {"adafactor": "adamw", "lars": "sgd", "lamb": "adamw"}
"""optimizers whose steps depend on whole matrices, each with one that takes parts of them"""
SHARDING_FORMS = "none, optimizer, full, full:K, tensor:K or pipeline:K with a whole number K of workers from 2"


class ShardingMethod(NamedTuple):
    """What each worker holds of the model."""

    kind: ShardingKind = "none"
    group_size: int = 0
    """workers that hold the parts of one replica of the model; 0 for all workers"""

    @property
    def splits_layers(self) -> bool:
        """Whether the workers of a replica compute parts of the same examples, instead of examples of their own."""
        return self.kind in ("tensor", "pipeline")


def parse_sharding(text: str) -> ShardingMethod:
    """Parse the value of --sharding."""
    kind, separator, number = text.partition(":")
    if kind in get_args(ShardingKind)[:3] and not separator:
        return ShardingMethod(kind)  # type: ignore[arg-type]  # narrowed by the line above
    if kind in get_args(ShardingKind)[2:] and is_whole_number(number, minimum=2):
        return ShardingMethod(kind, int(number))  # type: ignore[arg-type]
    takes_size = kind in ("tensor", "pipeline") or (kind == "full" and separator)
    example = f"{kind}:2" if takes_size else "full"
    raise EquipoiseError(
        "option-choice", f"sharding must be {SHARDING_FORMS}, got {text[:40]!a}", f"write it such as {example}"
    )


def require_runnable_sharding(
    sharding: ShardingMethod, workers: int, sync: str, compression: str, all_reduce: str, optimizer: str | None
) -> None:
    """Refuse a sharding that does not divide the workers, or that excludes another option."""
    if sharding.kind == "none":
        return
    name = f"{sharding.kind}:{sharding.group_size}" if sharding.group_size else sharding.kind
    require_divisible_workers(sharding, workers)
    for option, value in (("sync", sync), ("compression", compression)):
        if value not in ("step", "none"):
            raise EquipoiseError(
                "option-conflict",
                f"cannot use --{option} {value} with --sharding {name}: its workers exchange exact gradients in every"
                " step",
                f"omit --{option} or --sharding",
            )
    if sharding.kind != "optimizer" and all_reduce != "backend":
        raise EquipoiseError(
            "option-conflict",
            f"cannot sum by --all-reduce {all_reduce} with --sharding {name}: it has an exchange of its own",
            "omit --all-reduce",
        )
    if sharding.kind in ("full", "tensor") and optimizer in WHOLE_MATRIX_OPTIMIZERS:
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --optimizer {optimizer} with --sharding {name}: its steps depend on whole matrices, of which"
            " each worker holds a part",
            f"choose --optimizer {WHOLE_MATRIX_OPTIMIZERS[optimizer]}, or --sharding optimizer",
        )


def require_divisible_workers(sharding: ShardingMethod, workers: int) -> None:
    """Refuse workers that do not form whole groups, of which each holds a replica of the model."""
    size = sharding.group_size
    if size and workers % size:
        multiples = f"{max(1, workers // size) * size} or {(workers // size + 1) * size}"
        raise EquipoiseError(
            "sharding-unusable",
            f"cannot divide {workers} workers into groups of {size} for --sharding {sharding.kind}:{size}",
            f"choose --workers {size if workers < size else multiples}",
        )


def require_elastic_sharding(sharding: ShardingMethod, min_workers: int, workers: int) -> None:
    """Refuse a range of workers of which an elastic run may get a number that does not form whole groups."""
    size = sharding.group_size
    for number in range(max(2, min_workers), workers):  # one worker alone holds the whole model
        if size and number % size:
            raise EquipoiseError(
                "sharding-unusable",
                f"cannot use --workers {min_workers}:{workers} with --sharding {sharding.kind}:{size}: {number} workers"
                f" do not form groups of {size}",
                f"choose --workers {workers}, or --sharding full",
            )
