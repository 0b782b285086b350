"""Names of ways of exchange, `sync/compression/all-reduce/servers/sharding`, without defaults: `local:16/bf16`.

An empty name is the exact sum of the gradient in every step. `server` and `async:S` have a server on each worker, or
K of them with `servers:K`. `optimizer`, `full`, `full:K`, `tensor:K` and `pipeline:K` are exact sums of workers that
hold a part of the model each: other bytes and other memory, but no other examples. A name of others is an opaque label:
its rows can be compared and moved to another rate, but nothing is known of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.number_bounds import MAX_COUNT
from equipoise.planning.exchanges.compression_cost import GradientShapes
from equipoise.planning.exchanges.exchange_time import AllReduceCost, all_reduce_cost
from equipoise.planning.parameter_servers.server_cost import server_cost
from equipoise.registries.all_reduce_registry import ALL_REDUCE_ALGORITHMS
from equipoise.registries.sharding_registry import ShardingKind

MAX_NAME_LENGTH = 100
INTERVAL_SYNCS = ("local", "diloco")  # workers exchange every H steps
STORE_SYNCS = ("server", "async")  # workers push gradients to servers, which update the weights
COMPRESSED_SHARES = {"none": 1.0, "bf16": 0.5, "int8": 0.25}  # of the bytes of an exact exchange in fp32
SHARDED_SHARES = {"optimizer": 1.5, "full": 1.5}  # (p - 1) / p of the gradient three times, instead of twice
NUMBERED = ("local", "diloco", "async", "powersgd", "topk", "servers", "tensor", "pipeline")  # a number follows these
OPTIONALLY_NUMBERED = ("full",)
LOWEST_NUMBERS = {"async": 0, "servers": 0, "full": 2, "tensor": 2, "pipeline": 2}  # 1 for others
AXES = {
    "sync": ("step", "server", *INTERVAL_SYNCS, "async"),
    "compression": (*COMPRESSED_SHARES, "powersgd", "topk"),
    "all_reduce": ("auto", "backend", *ALL_REDUCE_ALGORITHMS),
    "servers": ("servers",),
    "sharding": get_args(ShardingKind)[1:],
}
DEFAULTS = ("step", "none", "auto", "backend")  # left out of names


@dataclass(frozen=True, kw_only=True)
class ExchangeMethod:
    """Way of exchange, as far as its name tells."""

    name: str = ""
    """the name without defaults; empty for exact sums in every step"""
    sync: Literal["step", "server", "local", "diloco", "async"] | None = "step"
    """when workers exchange; None if the name is an opaque label"""
    interval: int = 1
    """steps from one exchange to the next"""
    staleness: int = 0
    """largest number of updates between the weights that a worker of async pulls and the update with its gradient"""
    servers: int = 0
    """servers of `server` and `async`; 0 for one on each worker"""
    compression: str = "none"
    """what is sent: `none` for all of the gradient, or a compression with its number"""
    all_reduce: str = ""
    """algorithm of the sum; empty if it is not known"""
    sharding: str = "none"
    """what each worker holds of the model: `none` for all of it"""

    @property
    def is_exact(self) -> bool:
        """Whether every step takes the exact sum of the gradient by an all-reduce, of workers with the whole model."""
        return self.sync == "step" and self.compression == "none" and self.sharding == "none"

    @property
    def learns_exactly(self) -> bool:
        """Whether steps are those of exact sums, also where servers take them: what is learned does not change."""
        waits_for_all = self.sync in ("step", "server") or (self.sync == "async" and self.staleness == 0)
        return waits_for_all and self.compression == "none"

    @property
    def has_store(self) -> bool:
        """Whether workers push gradients to servers and pull weights from them."""
        return self.sync in STORE_SYNCS

    @property
    def interval_family(self) -> tuple[str, str] | None:
        """What exchanges every H steps share but for H; None for others."""
        return (self.compression, self.all_reduce) if self.sync in INTERVAL_SYNCS else None

    @property
    def number_family(self) -> tuple[str, ...] | None:
        """What ways of exchange share that differ in H or S alone, where their times tell of each other; else None."""
        if self.sync == "async":
            return ("async", self.all_reduce, str(self.servers))
        return self.interval_family

    def byte_share(self, workers: int, shapes: GradientShapes | None = None) -> float | None:
        """Return what is sent in an exchange over what an exact one sends; None where the name does not tell.

        That of powersgd depends on the shapes of the gradients, that of parts of layers on their activations.
        """
        if self.sync is None:
            return None
        if self.sharding != "none":
            return SHARDED_SHARES.get(self.sharding)
        kind, _, number = self.compression.partition(":")
        if kind == "topk":  # values and places of all others are gathered; a sum of gradients sends 2 (p - 1) / p
            return float(number) * workers
        if kind == "powersgd" and shapes is not None and shapes.num_numbers:
            return sum(shapes.count_low_rank_numbers(int(number))) / shapes.num_numbers
        return COMPRESSED_SHARES.get(kind)

    def sent_bytes(
        self, gradient_bytes: float, workers: int, nodes: int, shapes: GradientShapes | None = None
    ) -> float | None:
        """Return the bytes that leave a worker in a step, averaged over an interval; None where they are not known."""
        if (share := self.byte_share(workers, shapes)) is None:
            return None
        if self.has_store:
            return self.push_cost(gradient_bytes, workers, nodes).mean_sent_bytes
        cost = all_reduce_cost(self.all_reduce or "ring", workers, gradient_bytes, nodes)
        return cost.mean_sent_bytes * share / self.interval

    def push_cost(
        self, gradient_bytes: float, workers: int, nodes: int, part_shares: Sequence[float] | None = None
    ) -> AllReduceCost:
        """Return the cost of a push and a pull of all workers of a way with servers."""
        is_two_level = self.all_reduce == "two-level"
        return server_cost(
            workers, self.servers, gradient_bytes, nodes, part_shares=part_shares, is_two_level=is_two_level
        )


def parse_exchange(text: str) -> ExchangeMethod:
    """Parse the name of a way of exchange; a text that is no such name becomes an opaque label."""
    text = text.strip()
    if len(text) > MAX_NAME_LENGTH or make_printable(text) != text:
        raise EquipoiseError(
            "option-format",
            f"cannot read the exchange {text[:40]!a}: its name has control characters or more than"
            f" {MAX_NAME_LENGTH} characters",
            "give it a shorter name, such as local:8/bf16",
        )
    parts = [part.strip() for part in text.split("/")] if text else []
    axes = [find_axis(part.partition(":")[0]) for part in parts]
    if None in axes or len(set(axes)) < len(axes):
        return ExchangeMethod(name=text, sync=None)
    values: dict[str, str | int] = {}
    names: dict[str, str] = {}
    for axis, part in zip(axes, parts, strict=True):
        head, separator, number = part.partition(":")
        if (head in NUMBERED) != bool(separator) and head not in OPTIONALLY_NUMBERED:
            return ExchangeMethod(name=text, sync=None)
        part = f"{head}:{format_method_number(parse_method_number(part, head, number))}" if separator else part
        if head in DEFAULTS or part == "servers:0":
            continue
        names[str(axis)] = part
        values[str(axis)] = head if axis == "sync" else part
        if head in INTERVAL_SYNCS:
            values["interval"] = int(float(number))
        elif head == "async":
            values["staleness"] = int(float(number))
        elif head == "servers":
            values["servers"] = int(float(number))
    has_lone_servers = values.get("servers") and values.get("sync") not in STORE_SYNCS
    if has_lone_servers or ("sharding" in values and {"sync", "compression"} & {*values}):
        return ExchangeMethod(name=text, sync=None)
    return ExchangeMethod(name="/".join(names[axis] for axis in AXES if axis in names), **values)  # type: ignore[arg-type]


def format_method_number(value: float) -> str:
    """Format the number behind a method: a whole number with all its digits, a share as it is."""
    return str(int(value)) if value % 1 == 0 else f"{value:.6g}"


def find_axis(head: str) -> str | None:
    """Return the axis that a part of a name belongs to, or None."""
    return next((axis for axis, heads in AXES.items() if head in heads), None)


def parse_method_number(part: str, head: str, number: str) -> float:
    """Parse the number behind the name of a method: whole and at least 1, or 0 for some; a share of topk up to 1."""
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    lowest, highest = LOWEST_NUMBERS.get(head, 1), MAX_COUNT
    valid = 0 < value <= 1 if head == "topk" else lowest <= value <= highest and value % 1 == 0
    if not valid:
        bounds = f"a whole number of at least {lowest}" + (f" and at most {highest:.0e}" if value > highest else "")
        example = part.replace(",", "/") if "," in number else f"{head}:{0.01 if head == 'topk' else 8:g}"
        raise EquipoiseError(
            "option-range",
            f"cannot read the exchange {part[:40]!a}: behind {head} comes"
            f" {'a share above 0 and up to 1' if head == 'topk' else bounds}",
            f"write it such as {example[:40]}",
        )
    return value
