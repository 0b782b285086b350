"""Options of training that make a way of exchange, and the name of the way that options make."""

from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.registries.exchange_registry import parse_compression, parse_sync, require_compatible

TRAINED_SYNCS = ("step", "local", "diloco")
EXCHANGE_EXAMPLES = "local:16, diloco:16, bf16, int8, powersgd:4, topk:0.01 or local:16/bf16"


def find_exchange_options(method: ExchangeMethod, problem: str) -> dict[str, str]:
    """Return --sync and --compression of a way of exchange, and --all-reduce if it names an algorithm.

    Refuse a way that training does not have; the message begins with `problem`.
    """
    if method.sync not in TRAINED_SYNCS:
        raise EquipoiseError(
            "option-choice",
            f"{problem}: training has no such way of exchange",
            f"choose one such as {EXCHANGE_EXAMPLES}",
        )
    sync = "step" if method.sync == "step" else f"{method.sync}:{method.interval}"
    require_compatible(parse_sync(sync), parse_compression(method.compression))
    options = {"sync": sync, "compression": method.compression}
    return options | ({"all_reduce": method.all_reduce} if method.all_reduce else {})


def replace_exchange(config: TrainConfig, name: str) -> TrainConfig:
    """Return the options of a run with another way of exchange."""
    options = find_exchange_options(parse_exchange(name), f"cannot train with {name}")
    return replace(config, **options)  # type: ignore[arg-type]  # texts that the options check


def name_exchange(config: TrainConfig) -> str:
    """Return the name of the way in which a run exchanges, without the algorithm of its sums."""
    return parse_exchange(f"{config.sync}/{config.compression}").name
