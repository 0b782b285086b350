"""Carry packets between simulated hosts with a delay and at a rate.

    python -m tests.network.packet_forwarder DELAY_SECONDS MEGABITS NAMESPACE=ADDRESS ...

Each network namespace gets a TUN device, eth0, whose packets arrive here. A packet leaves its host after those before
it at the rate of the link, travels for the delay, and enters the other host at the rate of that one's link.
"""

import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DEVICE = b"eth0"
MAX_PACKET_BYTES = 1 << 16
FIN_SYN_RST = 0x07  # flags of TCP


@dataclass
class Link:
    """TUN device of a host, and when both directions of its link are free again."""

    device: int
    out_free_at: float = 0.0
    in_free_at: float = 0.0


class Arrival(NamedTuple):
    """When a packet reaches the link of its host, or the host at the end of that link."""

    time: float
    number: int
    """of the packet: the first one of two at the same time goes first"""
    target: Link
    packet: bytes
    at_host: bool


@dataclass
class Forwarder:
    """Links by address, and the packets that travel, the next one to arrive first."""

    links: dict[bytes, Link]
    delay_seconds: float
    bytes_a_second: float
    arrivals: list[Arrival] = field(default_factory=list)
    count: int = 0

    def accept(self, source: Link) -> None:
        """Read a packet that a host sends, and put it under way."""
        packet = os.read(source.device, MAX_PACKET_BYTES)
        target = self.links.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if target is None:  # IPv6, or an address that no host has
            return
        self.count += 1
        now = time.monotonic()
        if is_acknowledgement(packet):  # the fair queues of Linux let these go before the packets of large messages
            heapq.heappush(self.arrivals, Arrival(now + self.delay_seconds, self.count, target, packet, at_host=True))
            return
        starts_at = max(now, source.out_free_at)
        source.out_free_at = starts_at + len(packet) / self.bytes_a_second
        arrival = Arrival(starts_at + self.delay_seconds, self.count, target, packet, at_host=False)
        heapq.heappush(self.arrivals, arrival)

    def deliver_due(self) -> float | None:
        """Write the packets that have arrived, and return the seconds until the next one; None without any."""
        while self.arrivals:
            wait = self.arrivals[0].time - time.monotonic()
            if wait > 0:
                return wait
            arrival = heapq.heappop(self.arrivals)
            if arrival.at_host:
                os.write(arrival.target.device, arrival.packet)
            else:
                heapq.heappush(self.arrivals, self.enter_link(arrival))
        return None

    def enter_link(self, arrival: Arrival) -> Arrival:
        """Return when a packet has passed the link of its host, behind those that reached it before.

        Not behind those that were sent before: another host's may still wait for its own link.
        """
        link = arrival.target
        link.in_free_at = max(arrival.time, link.in_free_at) + len(arrival.packet) / self.bytes_a_second
        return arrival._replace(time=link.in_free_at, at_host=True)


def is_acknowledgement(packet: bytes) -> bool:
    """Return whether an IPv4 packet is of TCP and carries no data, and neither opens nor closes a connection."""
    header = 4 * (packet[0] & 15)
    if packet[9] != socket.IPPROTO_TCP or len(packet) < header + 20:
        return False
    return len(packet) == header + 4 * (packet[header + 12] >> 4) and not packet[header + 13] & FIN_SYN_RST


def open_tun(namespace: str) -> int:
    """Create the TUN device of a network namespace and return its file descriptor."""
    with open(f"/run/netns/{namespace}", "rb") as handle:  # noqa: PTH123 - its descriptor is wanted
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE, IFF_TUN | IFF_NO_PI))
    return device


def main() -> None:
    """Create the devices, say so, and carry packets until killed."""
    delay, megabits, *hosts = sys.argv[1:]
    pairs = [host.split("=") for host in hosts]
    links = {socket.inet_aton(address): Link(open_tun(name)) for name, address in pairs}
    forwarder = Forwarder(links, float(delay), float(megabits) * 1e6 / 8)
    by_device = {link.device: link for link in links.values()}
    os.nice(-10)  # links are no slower where the machine is busy
    print("ready", flush=True)
    while True:
        for device in select.select([*by_device], [], [], forwarder.deliver_due())[0]:
            forwarder.accept(by_device[device])


if __name__ == "__main__":
    main()
