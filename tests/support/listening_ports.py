"""Who listens where, by the kernel's tables."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def find_public_sockets(processes: Iterable[int]) -> list[str]:
    """Sockets on which these processes listen to more than this machine."""
    owners = {}
    for pid in processes:
        with suppress(OSError):  # it ended meanwhile
            name = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:60]
            for place in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    owners[str(place.readlink())] = name
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            owner = owners.get(f"socket:[{fields[9]}]")
            address, _, port = fields[1].partition(":")
            if owner and fields[3] == LISTENING and address not in LOOPBACK:
                found.append(f"{address}:{int(port, 16)} by {owner}")
    return found
