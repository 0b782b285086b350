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


@dataclass
class Forwarder:
    """Links by address, and the packets that travel, the next one to arrive first."""

    links: dict[bytes, Link]
    delay_seconds: float
    bytes_a_second: float
    packets: list[tuple[float, int, Link, bytes]] = field(default_factory=list)
    count: int = 0

    def accept(self, source: Link) -> None:
        """Read a packet that a host sends, and put it under way."""
        packet = os.read(source.device, MAX_PACKET_BYTES)
        target = self.links.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if target is None:  # IPv6, or an address that no host has
            return
        self.count += 1
        heapq.heappush(self.packets, (self.find_arrival(packet, source, target), self.count, target, packet))

    def find_arrival(self, packet: bytes, source: Link, target: Link) -> float:
        """Return when a packet arrives, and keep both links busy for as long as it takes."""
        now = time.monotonic()
        if is_acknowledgement(packet):  # the fair queues of Linux let these go before the packets of large messages
            return now + self.delay_seconds
        seconds = len(packet) / self.bytes_a_second
        starts_at = max(now, source.out_free_at)
        source.out_free_at = starts_at + seconds
        target.in_free_at = max(starts_at + self.delay_seconds, target.in_free_at) + seconds
        return target.in_free_at

    def deliver_due(self) -> float | None:
        """Write the packets that have arrived, and return the seconds until the next one; None without any."""
        while self.packets:
            wait = self.packets[0][0] - time.monotonic()
            if wait > 0:
                return wait
            _, _, target, packet = heapq.heappop(self.packets)
            os.write(target.device, packet)
        return None


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
