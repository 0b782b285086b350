"""Bytes that the kernel has sent, counted on the network interfaces that carry the messages of the workers."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil

LOOPBACK = "lo"  # messages between workers on one node pass it, whichever address they are sent to
STATISTICS_FOLDER = Path("/sys/class/net")


class SentBytesCounter:
    """Counter of the bytes that leave a node; the first worker on each node reads it for all of them."""

    def __init__(self, nodes: Sequence[int], rank: int) -> None:
        """Choose the interfaces; `nodes` is a number for the node of each worker."""
        self.is_reader = nodes.index(nodes[rank]) == rank
        self.interfaces = find_interfaces(crosses_nodes=len(set(nodes)) > 1, shares_nodes=len(set(nodes)) < len(nodes))

    @property
    def can_count(self) -> bool:
        """Whether the kernel shows counters here."""
        return bool(self.interfaces) and all(counter_file(name).is_file() for name in self.interfaces)

    def read(self) -> int:
        """Return the bytes that this node has sent so far; 0 on workers that do not read for their node."""
        if not self.is_reader or not self.can_count:
            return 0
        return sum(int(counter_file(name).read_text()) for name in self.interfaces)


def counter_file(interface: str) -> Path:
    """Return the file in which the kernel counts the bytes that an interface has sent."""
    return STATISTICS_FOLDER / interface / "statistics" / "tx_bytes"


def find_interfaces(*, crosses_nodes: bool, shares_nodes: bool) -> tuple[str, ...]:
    """Return the interfaces that carry messages: the loopback inside a node, another one between nodes."""
    inside = (LOOPBACK,) if shares_nodes else ()
    outside = find_interface_to(os.environ.get("MASTER_ADDR", "")) if crosses_nodes else None
    return (*inside, outside) if outside else inside if not crosses_nodes else ()


def find_interface_to(address: str) -> str | None:
    """Return the interface whose address is used for messages to `address`; None if there is none."""
    try:
        family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # of a datagram socket: nothing is sent
            own_address = probe.getsockname()[0]
    except OSError:
        return None
    for interface, addresses in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == own_address for entry in addresses):
            return str(interface)
    return None
