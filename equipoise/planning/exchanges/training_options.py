"""Options of training that make a way of exchange, and the name of the way that options make."""

from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.registries.all_reduce_registry import require_runnable_algorithm
from equipoise.registries.exchange_registry import (
    parse_compression,
    parse_sync,
    require_compatible,
    require_runnable_servers,
)

STORE_ALL_REDUCES = ("backend", "auto", "two-level")  # with which workers may push to servers
EXCHANGE_EXAMPLES = (
    "local:16, diloco:16, bf16, int8, powersgd:4, topk:0.01, local:16/bf16, server, async:4, optimizer or full"
)


def find_exchange_options(method: ExchangeMethod, problem: str) -> dict[str, str | int]:
    """Return --sync and --compression of a way of exchange, and --all-reduce, --servers and --sharding if it has them.

    Refuse a way that training does not have; the message begins with `problem`.
    """
    if method.sync is None:
        raise EquipoiseError(
            "option-choice",
            f"{problem}: training has no such way of exchange",
            f"choose one such as {EXCHANGE_EXAMPLES}",
        )
    sync = format_sync(method)
    all_reduce = method.all_reduce or "backend"
    require_compatible(
        parse_sync(sync), parse_compression(method.compression), all_reduce if method.has_store else "backend"
    )
    options: dict[str, str | int] = {"sync": sync, "compression": method.compression}
    options |= {"all_reduce": method.all_reduce} if method.all_reduce else {}
    options |= {"servers": method.servers} if method.has_store else {}
    return options | ({"sharding": method.sharding} if method.sharding != "none" else {})


def require_trainable(name: str, workers: int) -> None:
    """Refuse a way of exchange that so many workers cannot train with."""
    method = parse_exchange(name)
    find_exchange_options(method, f"cannot train with {name}")
    sync, all_reduce = parse_sync(format_sync(method)), method.all_reduce or "backend"
    require_compatible(sync, parse_compression(method.compression), all_reduce)
    require_runnable_servers(sync, method.servers, workers)
    require_runnable_algorithm(all_reduce, workers)


def format_sync(method: ExchangeMethod) -> str:
    """Return the value of --sync of a way of exchange."""
    if method.interval_family is not None:
        return f"{method.sync}:{method.interval}"
    return f"async:{method.staleness}" if method.sync == "async" else str(method.sync)


def replace_exchange(config: TrainConfig, name: str) -> TrainConfig:
    """Return the options of a run with another way of exchange."""
    method = parse_exchange(name)
    options = find_exchange_options(method, f"cannot train with {name}")
    if method.has_store and config.all_reduce not in STORE_ALL_REDUCES:
        options.setdefault("all_reduce", "backend")  # servers sum in its place
    if method.sharding not in ("none", "optimizer"):
        options.setdefault("all_reduce", "backend")  # parts have an exchange of their own
    return replace(config, **{"servers": 0, "sharding": "none", **options})  # type: ignore[arg-type]  # texts that the options check


def name_exchange(config: TrainConfig) -> str:
    """Return the name of the way in which a run exchanges, without the algorithm of its sums."""
    sharding = "" if config.sharding == "none" else f"/{config.sharding}"
    return parse_exchange(f"{config.sync}/{config.compression}/servers:{config.servers}{sharding}").name
