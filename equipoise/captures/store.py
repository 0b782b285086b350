"""Requests kept for labelling: a bounded sample that any number of replicas fill without talking to each other.

Weighted reservoir sampling (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006): a request
draws the key u**(1/weight), u uniform, and the largest keys stay. Which keys are largest does not depend on who drew
them, so that each replica writes its own, looks at the names that are there, and removes the smallest beyond the cap.

A capture is POOL-KEY-ID.png and, written last, POOL-KEY-ID.json. Once labelled it is written anew under the name
POOL-KEY-ID-labelled, which no replica removes: one that makes room at that moment takes the old files only.
"""

import csv
import io
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.captures.capture import (
    DIGITS,
    ID,
    POOLS,
    WHOLE,
    Answered,
    Name,
    abandoned,
    described,
    new_id,
    text,
    understood,
    usefulness,
)
from equipoise.formatting import first_line
from equipoise.images.png import encoded, readable
from equipoise.storage import atomic as store
from equipoise.storage.directory import opened

REST = 30.0  # seconds without a try after one that failed
STALE = 600.0  # seconds after which the keys to beat are looked up again: captures may have been taken away by hand
SHOWN = 20  # classes named in a sentence


class Unknown(ValueError):  # noqa: N818  # it reads as a sentence where it is caught
    """There is no such capture."""


class Captures:
    """The captures of one place: a folder, or a URL such as s3://bucket/captures.

    A place that cannot be written to is found out by the first `offer`, and told in `trouble`: it stops no service.
    Half of `most` is for each pool, and neither takes the other's room. Threads may share one.
    """

    def __init__(
        self, place: str, most: int = 500, *, seed: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if most < len(POOLS):
            raise ValueError(f"captures need room for one in each pool: most must be at least 2, got {most}")
        self.place, self.room = place, most // len(POOLS)
        self.trouble: str | None = None
        """one sentence on why the last try failed"""
        self.skipped = 0
        """files of the last `listed` or `exported` that are no whole capture"""
        self._files = opened(place)
        self._random, self._clock = np.random.default_rng(seed), clock
        self._floors = dict.fromkeys(POOLS, 0.0)  # the keys to beat
        self._stale = self._rested = -math.inf

    def offer(self, request: Answered) -> bool:
        """Whether the request was kept. It never raises, and costs no look at the place if its key is too small."""
        if self._clock() < self._rested:
            return False
        try:
            return self._offered(request)
        except Exception as error:  # a request is answered whatever becomes of its capture
            why = getattr(error, "strerror", None) or first_line(error)  # the place is named already
            self.trouble = f"captures cannot be kept in {self.place} ({why}): make it one to write to"
            self._rested = self._clock() + REST
            return False

    def _key(self, weight: float) -> float:
        """As it will be read from the name."""
        drawn: float = (1 - self._random.random()) ** (1 / weight)
        return round(drawn, DIGITS)

    def _offered(self, request: Answered) -> bool:
        key = self._key(request.weight)
        if self._clock() >= self._stale:
            self._look()
        if key <= self._floors[request.pool]:
            return False
        name = Name(request.pool, key, new_id(), False)
        self._write(name, encoded(request.picture), described(request, name))
        self.trouble = None
        self._look()
        return key >= self._floors[request.pool]

    def _look(self) -> None:
        """Make room in each pool, and remember what is to beat in it."""
        whole, others = self._names()
        for pool in POOLS:
            self._floors[pool] = self._trimmed([one for one in whole if one.pool == pool])
        for name in others:
            if abandoned(name):
                self._files.remove(name)
        self._stale = self._clock() + STALE

    def _trimmed(self, held: list[Name]) -> float:
        """The key to beat in a pool, once the smallest beyond its room are gone; what is labelled stays."""
        room = max(0, self.room - sum(one.labelled for one in held))
        free = sorted((one for one in held if not one.labelled), key=lambda one: one.key, reverse=True)
        for one in free[room:]:
            self._remove(one)
        if room == 0:
            return math.inf
        return free[room - 1].key if len(free) >= room else 0.0

    def _names(self) -> tuple[list[Name], set[str]]:
        """Captures that are whole, and the names of all other files."""
        names = set(self._files.names())
        matches = filter(None, map(WHOLE.fullmatch, names))
        found = [Name(one[1], float(one[2]), one[3], bool(one[4])) for one in matches]
        found = [one for one in found if f"{one.stem}.png" in names]
        labelled = {one.id for one in found if one.labelled}
        whole = [one for one in found if one.labelled or one.id not in labelled]
        return whole, names.difference(*((f"{one.stem}.png", f"{one.stem}.json") for one in whole))

    def _write(self, name: Name, picture: bytes, facts: dict[str, Any]) -> None:
        """Both files, or none."""
        try:
            self._files.write(f"{name.stem}.png", picture)
            self._files.write(f"{name.stem}.json", text(facts))
        except BaseException:
            with suppress(OSError):
                self._remove(name)
            raise

    def _remove(self, name: Name) -> None:
        """Both files, if they are there: first the one that makes it a capture."""
        self._files.remove(f"{name.stem}.json")
        self._files.remove(f"{name.stem}.png")

    def listed(self, pool: str | None = None, most: int | None = 100) -> list[dict[str, Any]]:
        """What is known of each capture, the most useful to label first; all of them if `most` is None."""
        whole, others = self._names()
        wanted = sorted((one for one in whole if pool in (None, one.pool)), key=usefulness)
        most, found, self.skipped = len(wanted) if most is None else most, list[dict[str, Any]](), len(others)
        while wanted and len(found) < most:
            part, wanted = wanted[: most - len(found)], wanted[most - len(found) :]
            held = self._files.read([f"{one.stem}.json" for one in part])
            good = [facts for one in part if (facts := understood(one, held.get(f"{one.stem}.json")))]
            found, self.skipped = found + good, self.skipped + len(part) - len(good)
        return found

    def picture(self, capture_id: str) -> bytes:
        """A PNG."""
        return self._held(capture_id)[2]

    def label(self, capture_id: str, name: str, classes: Sequence[str]) -> dict[str, Any]:
        """What is known of a capture, now that it is called `name`; another label given before is replaced."""
        require_class(name, classes)
        found, known, picture = self._held(capture_id)
        known["label_given"] = name
        if found.labelled:
            self._files.write(f"{found.stem}.json", text(known))
        else:
            self._write(found._replace(labelled=True), picture, known)
            self._remove(found)
        return known

    def _held(self, capture_id: str) -> tuple[Name, dict[str, Any], bytes]:
        """One capture."""
        require_id(capture_id)
        for _ in range(2):  # a label may be given between the listing and the reading: then it has another name
            if held := self._read([one for one in self._names()[0] if one.id == capture_id]):
                return held[0]
        raise Unknown(missing(capture_id))

    def _read(self, names: Sequence[Name]) -> list[tuple[Name, dict[str, Any], bytes]]:
        """Those of `names` that are not damaged."""
        held = self._files.read([f"{one.stem}.{kind}" for one in names for kind in ("json", "png")])
        known = [(one, understood(one, held.get(f"{one.stem}.json")), held.get(f"{one.stem}.png")) for one in names]
        return [(one, facts, picture) for one, facts, picture in known if facts and picture and readable(picture)]

    def labels(self, csv_text: str, classes: Sequence[str]) -> int:
        """How many labels a CSV of id,label gave: all of them, or none if a row is wrong."""
        asked, given = rows(csv_text), dict[str, tuple[int, str]]()
        ids = {capture_id for _, capture_id, _ in asked}
        there = {one.id for one, _, _ in self._read([one for one in self._names()[0] if one.id in ids])}
        for row, capture_id, name in asked:
            try:
                require_id(capture_id)
                require_class(name, classes)
            except ValueError as error:
                raise ValueError(f"row {row}: {error}") from None
            if capture_id not in there:
                raise ValueError(f"row {row}: {missing(capture_id)}")
            if capture_id in given:
                raise ValueError(f"row {row}: {capture_id} has a label in row {given[capture_id][0]} already")
            given[capture_id] = row, name
        for capture_id, (_, name) in given.items():
            self.label(capture_id, name, classes)
        return len(given)

    def exported(self, out: Path, classes: Sequence[str] | None = None, since: float = 0) -> dict[str, int]:
        """Labelled captures written as out/CLASS/ID.png, for --workload folder: how many of each class.

        Labels that are none of `classes` are left out: several models may keep their captures in one place. So are
        requests from before `since`, in seconds since 1970.
        """
        whole, others = self._names()
        labelled = [one for one in whole if one.labelled]
        held = self._read(sorted(labelled))
        self.skipped = len(others) + len(labelled) - len(held)
        wanted = [one for one in held if classes is None or one[1]["label_given"] in classes]
        wanted = [one for one in wanted if one[1]["at"] >= since]
        counts = Counter(known["label_given"] for _, known, _ in wanted)
        if not counts:
            among = "" if classes is None else f" as {among_them(classes)}"
            raise ValueError(f"no capture in {self.place} is labelled{among}: there is nothing to export")
        for name in counts:
            require_folder(name)
        with store.folder(out) as folder:
            for name in counts:
                (folder / name).mkdir()
            for one, known, picture in wanted:
                (folder / known["label_given"] / f"{one.id}.png").write_bytes(picture)
        return dict(sorted(counts.items()))


def rows(csv_text: str) -> list[tuple[int, str, str]]:
    """Row number (the header's is 1), id and label of each row of a CSV."""
    lines = csv.reader(io.StringIO(csv_text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
    try:
        found = list(enumerate(lines, 1))
    except csv.Error as error:
        raise ValueError(f"row {lines.line_num} is not CSV ({error})") from None
    head = found[0][1] if found else []
    if [one.strip() for one in head] != ["id", "label"]:
        raise ValueError(f"row 1 must be id,label, got {','.join(head)[:80]!r}")
    for row, cells in found:
        if len(cells) not in (0, 2):
            raise ValueError(f"row {row} has {len(cells)} columns, not the two of id,label")
    return [(row, cells[0].strip(), cells[1]) for row, cells in found[1:] if cells]


def require_id(capture_id: str) -> None:
    """Refuse what never was the id of a capture: no path is made of it."""
    if not ID.fullmatch(capture_id):
        raise Unknown(f"{capture_id[:40]!r} is no id of a capture: one has 16 hexadecimal digits")


def missing(capture_id: str) -> str:
    """Why it cannot be given."""
    return f"there is no capture {capture_id}: it was removed to make room, is damaged, or never was"


def require_class(name: str, classes: Sequence[str]) -> None:
    """Refuse a label that the model does not know."""
    if name not in classes:
        raise ValueError(f"there is no class {name[:40]!r}; there are: {among_them(classes)}")


def among_them(classes: Sequence[str]) -> str:
    """The first classes, for a sentence."""
    more = f" and {len(classes) - SHOWN} more" if len(classes) > SHOWN else ""
    return ", ".join(classes[:SHOWN]) + more


def require_folder(name: str) -> None:
    """Refuse a class that cannot name a folder, or whose folder the folder workload would pass over."""
    if not name or name.startswith((".", "__")) or any(mark in name for mark in "/\\\0"):
        raise ValueError(f"class {name[:40]!r} cannot be the name of a folder: no dot or __ first, no slash, not empty")
