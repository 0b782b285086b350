"""When workers exchange what they learned (`--sync`), and what they send (`--compression`), by name.

`equipoise.training` runs them; without it, their names and numbers are known here.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, get_args

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_flag, pluralize
from equipoise.number_bounds import MAX_COUNT

SyncKind = Literal["step", "local", "diloco", "server", "async"]
CompressionKind = Literal["none", "bf16", "int8", "powersgd", "topk"]
INTERVAL_SYNCS: tuple[SyncKind, ...] = ("local", "diloco")  # workers exchange weights every H steps
STORE_SYNCS: tuple[SyncKind, ...] = ("server", "async")  # workers push gradients to servers and pull weights
OUTER_OPTIONS = ("outer_lr", "outer_momentum")  # of the outer step of diloco
OWN_EXCHANGES: tuple[CompressionKind, ...] = ("bf16", "int8", "topk")  # in place of an all-reduce
SYNC_FORMS = (
    "step, server, local:H or diloco:H with a whole number H of steps from 1, or async:S with a whole number S of"
    " updates from 0"
)
COMPRESSION_FORMS = (
    "none, bf16, int8, powersgd:RANK with a whole rank from 1, or topk:SHARE with a share above 0 and up to 1"
)


class SyncMethod(NamedTuple):
    """When workers exchange: in every step, their weights every `interval` steps, or each when it is ready."""

    kind: SyncKind = "step"
    interval: int = 1
    staleness: int = 0
    """largest number of updates between the weights that a worker of async pulls and the update with its gradient"""

    @property
    def is_local(self) -> bool:
        """Whether workers take steps of their own between two exchanges."""
        return self.kind in INTERVAL_SYNCS

    @property
    def has_store(self) -> bool:
        """Whether workers push gradients to servers, which update the weights, and pull the weights from them."""
        return self.kind in STORE_SYNCS


class CompressionMethod(NamedTuple):
    """What workers send of a tensor; `amount` is the rank of powersgd, the share of topk, and 0 for others."""

    kind: CompressionKind = "none"
    amount: float = 0.0


def parse_sync(text: str) -> SyncMethod:
    """Parse the value of --sync."""
    kind, separator, number = text.partition(":")
    if kind in ("step", "server") and not separator:
        return SyncMethod(kind)  # type: ignore[arg-type]  # narrowed by this line
    if kind in INTERVAL_SYNCS and is_whole_number(number):
        return SyncMethod(kind, int(number))
    if kind == "async" and is_whole_number(number, minimum=0):
        return SyncMethod("async", staleness=int(number))
    example = "async:4" if kind == "async" else "local:16"
    if "/" in text:
        own, _, rest = text[:40].partition("/")
        example = f"--sync {own} --compression {rest}"
    raise EquipoiseError(
        "option-choice", f"--sync must be {SYNC_FORMS}, got {text[:40]!a}", f"write it such as {example}"
    )


def parse_compression(text: str) -> CompressionMethod:
    """Parse the value of --compression."""
    kind, separator, number = text.partition(":")
    if kind in get_args(CompressionKind)[:3] and not separator:
        return CompressionMethod(kind)  # type: ignore[arg-type]  # narrowed by the line above
    if kind == "powersgd" and is_whole_number(number):
        return CompressionMethod("powersgd", int(number))
    if kind == "topk" and is_share(number):
        return CompressionMethod("topk", float(number))
    raise EquipoiseError(
        "option-choice",
        f"--compression must be {COMPRESSION_FORMS}, got {text[:40]!a}",
        "write it such as powersgd:4 or topk:0.01",
    )


def require_compatible(sync: SyncMethod, compression: CompressionMethod, all_reduce: str = "backend") -> None:
    """Refuse options of an exchange that exclude each other.

    Weights and moments of the optimizer cannot travel as gradients do, and what is encoded number by number is not
    summed by an all-reduce.
    """
    if compression.kind in OWN_EXCHANGES and all_reduce not in ("backend", "auto"):
        raise EquipoiseError(
            "option-conflict",
            f"cannot sum by --all-reduce {all_reduce} what --compression {compression.kind} encodes: that has an"
            " exchange of its own",
            "omit --all-reduce",
        )
    if sync.has_store and compression.kind != "none":
        raise EquipoiseError(
            "option-conflict",
            f"cannot send {compression.kind} with --sync {sync.kind}: what workers push to servers is not compressed",
            "choose --compression none, or --sync step",
        )
    if sync.has_store and all_reduce not in ("backend", "auto", "two-level"):
        raise EquipoiseError(
            "option-conflict",
            f"cannot sum by --all-reduce {all_reduce} with --sync {sync.kind}: servers sum what workers push",
            "omit --all-reduce, or choose two-level, which sums inside each machine first",
        )
    if sync.kind == "async" and all_reduce == "two-level":
        raise EquipoiseError(
            "option-conflict",
            f"cannot sum by --all-reduce two-level with --sync async:{sync.staleness}: asynchronous workers of a"
            " machine do not wait for each other",
            "omit --all-reduce, or choose --sync server",
        )
    if sync.kind != "step" and compression.kind in ("powersgd", "topk"):
        raise EquipoiseError(
            "option-conflict",
            f"cannot send {compression.kind} with --sync {sync.kind}: weights and moments travel, not gradients",
            "choose --compression none, bf16 or int8, or --sync step",
        )


def require_runnable_servers(sync: SyncMethod, servers: int, workers: int) -> None:
    """Refuse servers that no worker can host, and servers of workers that exchange without any."""
    if servers and not sync.has_store:
        raise EquipoiseError(
            "option-conflict", f"--servers {servers} has no effect with --sync {sync.kind}", "choose --sync server"
        )
    if servers > workers:
        raise EquipoiseError(
            "option-range",
            f"got {pluralize(servers, 'server')} for {pluralize(workers, 'worker')}: a server runs beside a worker, at"
            " most one on each",
            "omit --servers, which puts one on each worker",
        )


def require_effective_options(sync: SyncMethod, compression: CompressionMethod, changed: Collection[str]) -> None:
    """Refuse options that were changed from their defaults and have no effect on this way of exchange."""
    for name in OUTER_OPTIONS:
        if name in changed and sync.kind != "diloco":
            raise EquipoiseError(
                "option-conflict",
                f"{format_flag(name)} has no effect with --sync {sync.kind}: only diloco takes an outer step",
                "choose --sync diloco:H, or leave it out",
            )
    if "error_feedback" in changed and compression.kind == "none":
        raise EquipoiseError(
            "option-conflict", "--no-error-feedback has no effect without --compression", "leave it out"
        )


def is_whole_number(text: str, minimum: int = 1) -> bool:
    """Return whether a text is a whole number from `minimum` to the largest count."""
    return text.isascii() and text.isdigit() and minimum <= int(text[:20]) <= MAX_COUNT


def is_share(text: str) -> bool:
    """Return whether a text is a number above 0 and up to 1."""
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False
