"""Carry packets between simulated hosts with a delay and at a rate.

    python -m tests.network.packet_forwarder DELAY_SECONDS MEGABITS NAMESPACE=ADDRESS ...

Each network namespace gets a TUN device, eth0, whose packets arrive here. They leave their host at the rate of its
link, those for each other host in turns, as the fair queues of Linux send them. A packet travels for the delay, and
enters the other host at the rate of that one's link, behind those that reached it before.
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
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DEVICE = b"eth0"
MAX_PACKET_BYTES = 1 << 16
FIN_SYN_RST = 0x07  # flags of TCP


@dataclass
class Link:
    """TUN device of a host, when both directions of its link are free again, and what waits to leave."""

    device: int
    out_free_at: float = 0.0
    in_free_at: float = 0.0
    waiting: dict[bytes, deque[bytes]] = field(default_factory=dict)
    """packets by the address of the other host; the host whose turn is next comes first"""

    def take_next_packet(self) -> bytes:
        """Take the first packet for the host whose turn it is; the next turn is another one's."""
        address = next(iter(self.waiting))
        packets = self.waiting.pop(address)
        packet = packets.popleft()
        if packets:
            self.waiting[address] = packets
        return packet


class Departure(NamedTuple):
    """When the link of a host is free for the next packet that waits."""

    time: float
    number: int
    source: Link


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
    """Links by address, and what happens to packets, the next event first."""

    links: dict[bytes, Link]
    delay_seconds: float
    bytes_a_second: float
    events: list[Arrival | Departure] = field(default_factory=list)
    count: int = 0

    def accept(self, source: Link) -> None:
        """Read a packet that a host sends, and put it under way."""
        packet = os.read(source.device, MAX_PACKET_BYTES)
        target = self.links.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if target is None:  # IPv6, or an address that no host has
            return
        now = time.monotonic()
        if is_acknowledgement(packet):  # fair queues let these go before the packets of large messages
            self.plan(Arrival(now + self.delay_seconds, self.next_number(), target, packet, at_host=True))
            return
        if not source.waiting:
            self.plan(Departure(max(now, source.out_free_at), self.next_number(), source))
        source.waiting.setdefault(packet[16:20], deque()).append(packet)

    def next_number(self) -> int:
        """Return the number of a new event."""
        self.count += 1
        return self.count

    def plan(self, event: Arrival | Departure) -> None:
        """Let something happen at its time."""
        heapq.heappush(self.events, event)

    def deliver_due(self) -> float | None:
        """Let happen what is due, and return the seconds until the next event; None without any."""
        while self.events:
            wait = self.events[0].time - time.monotonic()
            if wait > 0:
                return wait
            event = heapq.heappop(self.events)
            if isinstance(event, Departure):
                self.send_next(event)
            elif event.at_host:
                os.write(event.target.device, event.packet)
            else:
                self.plan(self.enter_link(event))
        return None

    def send_next(self, departure: Departure) -> None:
        """Let the next packet leave its host; the one after it follows when it has left."""
        source = departure.source
        packet = source.take_next_packet()
        target = self.links[packet[16:20]]
        source.out_free_at = departure.time + len(packet) / self.bytes_a_second
        self.plan(Arrival(departure.time + self.delay_seconds, self.next_number(), target, packet, at_host=False))
        if source.waiting:
            self.plan(Departure(source.out_free_at, self.next_number(), source))

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
