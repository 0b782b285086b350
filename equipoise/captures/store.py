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
    CAPTURE_ID_PATTERN,
    CAPTURE_POOLS,
    KEY_DIGITS,
    METADATA_FILE_PATTERN,
    CapturedRequest,
    CaptureName,
    capture_metadata,
    encode_metadata,
    is_stale_file,
    labelling_priority,
    new_capture_id,
    parse_metadata,
)
from equipoise.formatting import first_error_line
from equipoise.images.png import encode_png, is_valid_png
from equipoise.storage.atomic import atomic_folder
from equipoise.storage.directory import open_directory

CAPTURE_RETRY_SECONDS = 30.0  # seconds without a try after one that failed
KEY_REFRESH_SECONDS = (
    600.0  # seconds after which the keys to beat are looked up again: captures may have been taken away by hand
)
MAX_CLASSES_IN_MESSAGE = 20  # classes named in a sentence


class CaptureNotFound(ValueError):  # noqa: N818  # it reads as a sentence where it is caught
    """There is no such capture."""


class CaptureStore:
    """The captures of one place: a folder, or a URL such as s3://bucket/captures.

    A place that cannot be written to is found out by the first `offer`, and told in `trouble`: it stops no service.
    Half of `most` is for each pool, and neither takes the other's room. Threads may share one.
    """

    def __init__(
        self,
        location: str,
        max_captures: int = 500,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_captures < len(CAPTURE_POOLS):
            raise ValueError(f"captures need room for one in each pool: most must be at least 2, got {max_captures}")
        self.location, self.pool_capacity = location, max_captures // len(CAPTURE_POOLS)
        self.last_error: str | None = None
        """one sentence on why the last try failed"""
        self.skipped_files = 0
        """files of the last `listed` or `exported` that are no whole capture"""
        self._directory = open_directory(location)
        self._rng, self._clock = np.random.default_rng(seed), clock
        self._min_keys = dict.fromkeys(CAPTURE_POOLS, 0.0)  # the keys to beat
        self._refresh_at = self._retry_at = -math.inf

    def offer(self, request: CapturedRequest) -> bool:
        """Whether the request was kept. It never raises, and costs no look at the place if its key is too small."""
        if self._clock() < self._retry_at:
            return False
        try:
            return self._try_capture(request)
        except Exception as error:  # a request is answered whatever becomes of its capture
            why = getattr(error, "strerror", None) or first_error_line(error)  # the place is named already
            self.last_error = f"captures cannot be kept in {self.location} ({why}): make it one to write to"
            self._retry_at = self._clock() + CAPTURE_RETRY_SECONDS
            return False

    def _draw_key(self, weight: float) -> float:
        """As it will be read from the name."""
        drawn: float = (1 - self._rng.random()) ** (1 / weight)
        return round(drawn, KEY_DIGITS)

    def _try_capture(self, request: CapturedRequest) -> bool:
        key = self._draw_key(request.weight)
        if self._clock() >= self._refresh_at:
            self._evict()
        if key <= self._min_keys[request.pool]:
            return False
        name = CaptureName(request.pool, key, new_capture_id(), False)
        self._write_files(name, encode_png(request.picture), capture_metadata(request, name))
        self.last_error = None
        self._evict()
        return key >= self._min_keys[request.pool]

    def _evict(self) -> None:
        """Make room in each pool, and remember what is to beat in it."""
        whole, others = self._scan_files()
        for pool in CAPTURE_POOLS:
            self._min_keys[pool] = self._evict_pool([one for one in whole if one.pool == pool])
        for name in others:
            if is_stale_file(name):
                self._directory.remove_file(name)
        self._refresh_at = self._clock() + KEY_REFRESH_SECONDS

    def _evict_pool(self, captures: list[CaptureName]) -> float:
        """The key to beat in a pool, once the smallest beyond its room are gone; what is labelled stays."""
        room = max(0, self.pool_capacity - sum(one.labelled for one in captures))
        free = sorted((one for one in captures if not one.labelled), key=lambda one: one.key, reverse=True)
        for one in free[room:]:
            self._remove_files(one)
        if room == 0:
            return math.inf
        return free[room - 1].key if len(free) >= room else 0.0

    def _scan_files(self) -> tuple[list[CaptureName], set[str]]:
        """Captures that are whole, and the names of all other files."""
        names = set(self._directory.list_files())
        matches = filter(None, map(METADATA_FILE_PATTERN.fullmatch, names))
        found = [CaptureName(one[1], float(one[2]), one[3], bool(one[4])) for one in matches]
        found = [one for one in found if f"{one.stem}.png" in names]
        labelled = {one.id for one in found if one.labelled}
        whole = [one for one in found if one.labelled or one.id not in labelled]
        return whole, names.difference(*((f"{one.stem}.png", f"{one.stem}.json") for one in whole))

    def _write_files(self, name: CaptureName, png: bytes, metadata: dict[str, Any]) -> None:
        """Both files, or none."""
        try:
            self._directory.write_file(f"{name.stem}.png", png)
            self._directory.write_file(f"{name.stem}.json", encode_metadata(metadata))
        except BaseException:
            with suppress(OSError):
                self._remove_files(name)
            raise

    def _remove_files(self, name: CaptureName) -> None:
        """Both files, if they are there: first the one that makes it a capture."""
        self._directory.remove_file(f"{name.stem}.json")
        self._directory.remove_file(f"{name.stem}.png")

    def list_captures(self, pool: str | None = None, limit: int | None = 100) -> list[dict[str, Any]]:
        """What is known of each capture, the most useful to label first; all of them if `most` is None."""
        whole, others = self._scan_files()
        wanted = sorted((one for one in whole if pool in (None, one.pool)), key=labelling_priority)
        limit, found, self.skipped_files = len(wanted) if limit is None else limit, list[dict[str, Any]](), len(others)
        while wanted and len(found) < limit:
            part, wanted = wanted[: limit - len(found)], wanted[limit - len(found) :]
            held = self._directory.read_files([f"{one.stem}.json" for one in part])
            good = [facts for one in part if (facts := parse_metadata(one, held.get(f"{one.stem}.json")))]
            found, self.skipped_files = found + good, self.skipped_files + len(part) - len(good)
        return found

    def read_png(self, capture_id: str) -> bytes:
        """A PNG."""
        return self._find_capture(capture_id)[2]

    def label_capture(self, capture_id: str, class_name: str, classes: Sequence[str]) -> dict[str, Any]:
        """What is known of a capture, now that it is called `name`; another label given before is replaced."""
        require_class(class_name, classes)
        found, known, picture = self._find_capture(capture_id)
        known["label_given"] = class_name
        if found.labelled:
            self._directory.write_file(f"{found.stem}.json", encode_metadata(known))
        else:
            self._write_files(found._replace(labelled=True), picture, known)
            self._remove_files(found)
        return known

    def _find_capture(self, capture_id: str) -> tuple[CaptureName, dict[str, Any], bytes]:
        """One capture."""
        require_capture_id(capture_id)
        for _ in range(2):  # a label may be given between the listing and the reading: then it has another name
            if held := self._read_captures([one for one in self._scan_files()[0] if one.id == capture_id]):
                return held[0]
        raise CaptureNotFound(not_found_message(capture_id))

    def _read_captures(self, names: Sequence[CaptureName]) -> list[tuple[CaptureName, dict[str, Any], bytes]]:
        """Those of `names` that are not damaged."""
        held = self._directory.read_files([f"{one.stem}.{kind}" for one in names for kind in ("json", "png")])
        known = [(one, parse_metadata(one, held.get(f"{one.stem}.json")), held.get(f"{one.stem}.png")) for one in names]
        return [(one, facts, picture) for one, facts, picture in known if facts and picture and is_valid_png(picture)]

    def label_from_csv(self, csv_text: str, classes: Sequence[str]) -> int:
        """How many labels a CSV of id,label gave: all of them, or none if a row is wrong."""
        asked, given = parse_label_csv(csv_text), dict[str, tuple[int, str]]()
        ids = {capture_id for _, capture_id, _ in asked}
        there = {one.id for one, _, _ in self._read_captures([one for one in self._scan_files()[0] if one.id in ids])}
        for row, capture_id, name in asked:
            try:
                require_capture_id(capture_id)
                require_class(name, classes)
            except ValueError as error:
                raise ValueError(f"row {row}: {error}") from None
            if capture_id not in there:
                raise ValueError(f"row {row}: {not_found_message(capture_id)}")
            if capture_id in given:
                raise ValueError(f"row {row}: {capture_id} has a label in row {given[capture_id][0]} already")
            given[capture_id] = row, name
        for capture_id, (_, name) in given.items():
            self.label_capture(capture_id, name, classes)
        return len(given)

    def export_labelled(self, out: Path, classes: Sequence[str] | None = None, since: float = 0) -> dict[str, int]:
        """Labelled captures written as out/CLASS/ID.png, for --workload folder: how many of each class.

        Labels that are none of `classes` are left out: several models may keep their captures in one place. So are
        requests from before `since`, in seconds since 1970.
        """
        whole, others = self._scan_files()
        labelled = [one for one in whole if one.labelled]
        held = self._read_captures(sorted(labelled))
        self.skipped_files = len(others) + len(labelled) - len(held)
        wanted = [one for one in held if classes is None or one[1]["label_given"] in classes]
        wanted = [one for one in wanted if one[1]["at"] >= since]
        counts = Counter(known["label_given"] for _, known, _ in wanted)
        if not counts:
            among = "" if classes is None else f" as {format_class_list(classes)}"
            raise ValueError(f"no capture in {self.location} is labelled{among}: there is nothing to export")
        for name in counts:
            require_folder_name(name)
        with atomic_folder(out) as folder:
            for name in counts:
                (folder / name).mkdir()
            for one, known, picture in wanted:
                (folder / known["label_given"] / f"{one.id}.png").write_bytes(picture)
        return dict(sorted(counts.items()))


def parse_label_csv(csv_text: str) -> list[tuple[int, str, str]]:
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


def require_capture_id(capture_id: str) -> None:
    """Refuse what never was the id of a capture: no path is made of it."""
    if not CAPTURE_ID_PATTERN.fullmatch(capture_id):
        raise CaptureNotFound(f"{capture_id[:40]!r} is no id of a capture: one has 16 hexadecimal digits")


def not_found_message(capture_id: str) -> str:
    """Why it cannot be given."""
    return f"there is no capture {capture_id}: it was removed to make room, is damaged, or never was"


def require_class(class_name: str, classes: Sequence[str]) -> None:
    """Refuse a label that the model does not know."""
    if class_name not in classes:
        raise ValueError(f"there is no class {class_name[:40]!r}; there are: {format_class_list(classes)}")


def format_class_list(classes: Sequence[str]) -> str:
    """The first classes, for a sentence."""
    more = f" and {len(classes) - MAX_CLASSES_IN_MESSAGE} more" if len(classes) > MAX_CLASSES_IN_MESSAGE else ""
    return ", ".join(classes[:MAX_CLASSES_IN_MESSAGE]) + more


def require_folder_name(class_name: str) -> None:
    """Refuse a class that cannot name a folder, or whose folder the folder workload would pass over."""
    if not class_name or class_name.startswith((".", "__")) or any(mark in class_name for mark in "/\\\0"):
        raise ValueError(
            f"class {class_name[:40]!r} cannot be the name of a folder: no dot or __ first, no slash, not empty"
        )
