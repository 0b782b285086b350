"""Leases: which picture is handed to whom, so that two people do not label the same one.

A lease ends by itself after some minutes, so that the picture of a closed or killed page is handed out again. It is
only a courtesy: what keeps labels from being lost is the revision of each save.
"""

import time
from collections.abc import Callable

from equipoise.errors import EquipoiseError
from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value

LEASES_FILE = ".leases.json"
LEASE_SECONDS = 300.0  # an open page renews its lease long before

Leases = dict[str, tuple[str, float]]
"""holder and end in seconds since 1970, by picture"""


class LeaseBook:
    """Leases of the pictures of a label store, in a file beside the labels."""

    def __init__(
        self, store: LabelStore, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self.store, self.seconds, self.clock = store, seconds, clock
        self.path = store.folder / LEASES_FILE

    def read_leases(self) -> Leases:
        """Return the leases that have not ended; a damaged file counts as none."""
        try:
            leases = decode_json_value(read_json(self.path), Leases, code="file-damaged", problem="")
        except (FileNotFoundError, EquipoiseError):
            return {}
        now = self.clock()
        return {picture: lease for picture, lease in leases.items() if now < lease[1] <= now + self.seconds}

    def find_holder(self, picture: str) -> str | None:
        """Return who has a picture, or None."""
        return self.read_leases().get(picture, (None, 0.0))[0]

    def take_picture(self, picture: str, holder: str) -> bool:
        """Lease a picture, in place of any other that the holder has; return False if somebody else has it."""
        with self.store.lock():
            return self.take_while_locked(picture, holder, self.read_leases())

    def take_while_locked(self, picture: str, holder: str, leases: Leases) -> bool:
        """Lease a picture as `take_picture` does, where the caller has locked the store and read the leases."""
        if leases.get(picture, (holder, 0.0))[0] != holder:
            return False
        others = {name: lease for name, lease in leases.items() if lease[0] != holder}
        write_json(self.path, others | {picture: (holder, self.clock() + self.seconds)})
        return True

    def release_pictures(self, holder: str) -> None:
        """End the leases of a holder."""
        with self.store.lock():
            leases = self.read_leases()
            write_json(self.path, {name: lease for name, lease in leases.items() if lease[0] != holder})
