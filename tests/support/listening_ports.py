"""Find listening TCP sockets that other machines can reach, in the kernel's tables."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTEN_STATE = "0A"
LOOPBACK_ADDRESSES = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def find_public_sockets(processes: Iterable[int]) -> list[str]:
    """Return address, port and command of each socket on which one of the processes listens beyond loopback."""
    commands = {}
    for pid in processes:
        with suppress(OSError):  # the process has ended in the meantime
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:60]
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    commands[str(descriptor.readlink())] = command
    sockets = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            command = commands.get(f"socket:[{fields[9]}]")
            address, _, port = fields[1].partition(":")
            if command and fields[3] == LISTEN_STATE and address not in LOOPBACK_ADDRESSES:
                sockets.append(f"{address}:{int(port, 16)} by {command}")
    return sockets
