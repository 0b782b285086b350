"""The option --exchanges: which other ways of exchange a sweep considers."""

from collections.abc import Sequence

from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.planning.exchanges.training_options import EXCHANGE_EXAMPLES, find_exchange_options

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
