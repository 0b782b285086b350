"""The option --exchanges: which other ways of exchange a sweep considers."""

from collections.abc import Sequence

from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.compression_cost import GradientShapes, find_largest_rank, saves_bytes
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.planning.exchanges.training_options import EXCHANGE_EXAMPLES, find_exchange_options
from equipoise.registries.exchange_registry import parse_compression

AUTO, NONE = "auto", "none"


def require_usable_exchanges(names: Sequence[str], most_workers: int, command: str | None) -> None:
    """Refuse ways of exchange that a sweep cannot try: unknown ones, or any for a command or a single worker."""
    if not names:
        raise EquipoiseError(
            "option-missing", "--exchanges has no value", f"give {AUTO}, {NONE}, or names such as {EXCHANGE_EXAMPLES}"
        )
    if names_no_exchange(names):
        return
    most_servers = max(parse_tried_exchange(name).servers for name in names)
    if command is not None:
        raise EquipoiseError(
            "option-conflict",
            f"cannot try {names[0]} with a --command: it exchanges in its own way",
            "leave out --exchanges, or sweep a workload",
        )
    if most_workers == 1:
        raise EquipoiseError(
            "option-conflict",
            f"cannot try {names[0]} with one worker: it exchanges nothing",
            "give more --workers, or leave out --exchanges",
        )
    if most_servers > most_workers:
        raise EquipoiseError(
            "option-range",
            f"cannot try {most_servers} servers on {most_workers} workers: at most one is on each",
            "leave out /servers, which puts one on each worker",
        )


def require_usable_ranks(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse a rank of powersgd at which no gradient of these shapes would be sent in fewer numbers."""
    if names_no_exchange(names) or not shapes:
        return
    matrices = GradientShapes.from_shapes(shapes).matrices
    for name in names:
        compression = parse_compression(parse_tried_exchange(name).compression)
        rank = int(compression.amount)
        if compression.kind != "powersgd" or any(saves_bytes(rows, columns, rank) for rows, columns in matrices):
            continue
        largest = max((find_largest_rank(rows, columns) for rows, columns in matrices), default=0)
        raise EquipoiseError(
            "compression-unusable",
            f"cannot try {name}: no matrix of this model would be sent in fewer numbers",
            f"choose powersgd:{largest} or a lower rank" if largest else "choose bf16 or int8",
        )


def names_no_exchange(names: Sequence[str]) -> bool:
    """Return whether the option names no way of exchange: it leaves the choice to the sweep, or wants none."""
    return tuple(names) in ((AUTO,), (NONE,))


def parse_tried_exchange(text: str) -> ExchangeMethod:
    """Parse the name of a way of exchange that a sweep can try beside exact sums."""
    problem = f"cannot try the exchange {text[:40]!a}"
    if text in (AUTO, NONE):
        raise EquipoiseError("option-conflict", f"{problem} together with others", "give it alone, or leave it out")
    method = parse_exchange(text)
    find_exchange_options(method, problem)
    if method.is_exact:
        raise EquipoiseError(
            "option-choice",
            f"{problem}: every sweep measures exact sums",
            "leave it out, or choose the algorithm of the sums with --all-reduce",
        )
    if method.all_reduce:
        raise EquipoiseError(
            "option-conflict",
            f"{problem}: one algorithm makes the sums of the whole sweep",
            f"leave out /{method.all_reduce} here, and give --all-reduce {method.all_reduce}",
        )
    return method
