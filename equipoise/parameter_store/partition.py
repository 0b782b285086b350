"""Which server holds which key, and what servers cost in bytes. A key is a whole parameter, by its name.

With m bytes of weights on K of p workers, of which M bytes are the largest part, a worker pushes all parts but the one
that its own server holds, and a server answers the pulls of p - 1 other workers. So the busiest rank, that of the
largest part, sends (m - M) + (p - 1) M = m + (p - 2) M bytes in a step:

    K = 1           (p - 1) m           as `root` among the algorithms of --all-reduce
    K = p, even     2 (p - 1) / p m     as `sharded-root`

A worker without a server sends m, which is never more. Both have two rounds: the push, and the weights that follow.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_bytes, pluralize


class StoreTraffic(NamedTuple):
    """Bytes that leave one process in a step of all workers, and messages that wait for each other."""

    sent_bytes: int
    rounds: int


def partition_keys(key_bytes: Mapping[str, int], servers: int) -> list[list[str]]:
    """Return the keys of each server, in the order of `key_bytes`: the largest first to the server with least so far.

    Refuse more servers than keys.
    """
    require_enough_keys(len(key_bytes), servers)
    parts: list[list[str]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for key in sorted(key_bytes, key=lambda key: -key_bytes[key]):
        server = min(range(servers), key=lambda index: (loads[index], len(parts[index])))
        parts[server].append(key)
        loads[server] += key_bytes[key]
    places = {key: place for place, key in enumerate(key_bytes)}
    return [sorted(part, key=places.__getitem__) for part in parts]


def describe_servers(key_bytes: Mapping[str, int], servers: int, workers: int) -> str:
    """Return a line on the parts of servers, one on each worker if `servers` is 0; refuse more servers than keys."""
    sizes = list_part_bytes(key_bytes, servers or min(workers, len(key_bytes)))
    if len(sizes) == 1:
        return f"weights of {format_bytes(sizes[0])} are on 1 server"
    return f"weights are on {len(sizes)} servers, in parts of {format_bytes(min(sizes))} to {format_bytes(max(sizes))}"


def require_enough_keys(keys: int, servers: int) -> None:
    """Refuse more servers than there are keys for."""
    if servers > keys:
        raise EquipoiseError(
            "option-range",
            f"cannot spread {pluralize(keys, 'parameter')} over {servers} servers: a server holds whole parameters of"
            " the model, at least one",
            f"choose --servers {keys} or fewer",
        )


def list_part_bytes(key_bytes: Mapping[str, int], servers: int) -> list[int]:
    """Return the bytes of each server's part."""
    return [sum(key_bytes[key] for key in part) for part in partition_keys(key_bytes, servers)]


def store_traffic(part_bytes: Sequence[int], workers: int, clips: bool = False) -> StoreTraffic:
    """Return what the busiest of `workers` sends in a step; with `clips`, servers tell each other their norms first."""
    if workers == 1:
        return StoreTraffic(0, 0)
    busiest = sum(part_bytes) + (workers - 2) * max(part_bytes)
    return StoreTraffic(busiest, 3 if clips and len(part_bytes) > 1 else 2)
