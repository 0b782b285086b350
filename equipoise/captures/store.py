"""Store of requests kept for labelling: a bounded sample that many replicas fill without communicating.

Weighted reservoir sampling (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006): a request
draws the key u**(1/weight), u uniform, and the largest keys stay. Which keys are largest does not depend on who drew
them: each replica writes its own captures, lists the file names, and removes the smallest keys beyond the limit.

A capture is POOL-KEY-ID.png and, written last, POOL-KEY-ID.json. Once labelled it is written again under the name
POOL-KEY-ID-labelled, which no replica removes: a replica that makes room at that moment removes only the old files. One
that is labelled elsewhere is held, and not removed either.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from types import MappingProxyType

import numpy as np

from equipoise.captures.capture import (
    CAPTURE_POOLS,
    KEY_DIGITS,
    CapturedRequest,
    CaptureMetadata,
    CaptureName,
    is_stale_file,
    labelling_priority,
    new_capture_id,
    parse_metadata,
)
from equipoise.captures.capture_id import CaptureNotFound, not_found_message, require_capture_id
from equipoise.captures.file_listing import CaptureListing, held_file_name, sort_capture_files
from equipoise.captures.labels import format_class_list, parse_label_csv, require_class, require_folder_name
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.images.png import is_valid_png
from equipoise.storage.atomic import atomic_folder
from equipoise.storage.directory import open_directory

CAPTURE_RETRY_SECONDS = 30.0  # pause after a failed attempt to write
KEY_REFRESH_SECONDS = 600.0  # age at which the minimum keys are read again: captures may have been removed by hand


class CaptureStore:
    """Captures in one location: a folder, or a URL such as s3://bucket/captures.

    A location that is not writable stops no service: the first `offer` notices it and explains it in `last_error`.
    Each pool may fill half of `max_captures`; neither uses the room of the other. Threads may share a store.
    """

    def __init__(
        self,
        location: str,
        max_captures: int = 500,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        listing_seconds: float = 0.0,
    ) -> None:
        """Open a store, without accessing its location yet.

        After a capture was written the location is listed, at most once in `listing_seconds`: until then captures that
        others write are not noticed, and there may be more of them than `max_captures`.
        """
        if max_captures < len(CAPTURE_POOLS):
            raise EquipoiseError(
                "option-range",
                f"max_captures must be at least {len(CAPTURE_POOLS)}, one for each pool "
                f"({', '.join(CAPTURE_POOLS)}), got {max_captures}",
            )
        self.location, self.pool_capacity = location, max_captures // len(CAPTURE_POOLS)
        self.last_error: str | None = None
        """one sentence on why the last attempt to write failed; None after a success"""
        self.skipped_files = 0
        """files that the last `list_captures` or `export_labelled` skipped because they are not a complete capture"""
        self._directory = open_directory(location)
        self._rng, self._clock = np.random.default_rng(seed), clock
        self._min_keys = dict.fromkeys(CAPTURE_POOLS, 0.0)  # a new capture needs a larger key
        self._kept: dict[str, list[tuple[float, CaptureName]]] = {pool: [] for pool in CAPTURE_POOLS}
        """heaps of the unlabelled captures of each pool, as listed last and written since"""
        self._rooms = dict.fromkeys(CAPTURE_POOLS, 0)  # for unlabelled captures
        self._listing_seconds = listing_seconds
        self._list_at = self._refresh_at = self._retry_at = -math.inf

    def offer(self, request: CapturedRequest) -> bool:
        """Return whether the request was kept; never raise, and access no files if its key is too small."""
        if self._clock() < self._retry_at:
            return False
        try:
            return self._try_capture(request)
        except Exception as error:  # requests are answered even if captures cannot be written
            reason = getattr(error, "strerror", None) or first_error_line(error)  # without the path: it is named below
            self.last_error = f"cannot write captures to {self.location}: {reason}; make it writable"
            self._retry_at = self._clock() + CAPTURE_RETRY_SECONDS
            return False

    def _draw_key(self, weight: float) -> float:
        """Draw the key of a weight, rounded as in a file name."""
        key: float = (1 - self._rng.random()) ** (1 / weight)
        return round(key, KEY_DIGITS)

    def _try_capture(self, request: CapturedRequest) -> bool:
        key = self._draw_key(request.weight)
        if self._clock() >= self._refresh_at:
            self.evict()
        if key <= self._min_keys[request.pool]:
            return False
        name = CaptureName(request.pool, key, new_capture_id(), False)
        png, boxes = request.encode_image()
        self._write_files(name, png, CaptureMetadata.from_request(request, name, boxes))
        self.last_error = None
        if self._clock() >= self._list_at:
            self.evict()
        else:
            heappush(self._kept[request.pool], (key, name))
            self._evict_kept(request.pool)
        return key >= self._min_keys[request.pool]

    def evict(self) -> None:
        """Remove the smallest keys of each pool beyond its room and old leftovers; update the minimum keys."""
        listing = self._scan_files()
        for pool in CAPTURE_POOLS:
            captures = [capture for capture in listing.complete if capture.pool == pool]
            self._kept[pool] = [(capture.key, capture) for capture in captures if listing.makes_room(capture)]
            self._rooms[pool] = max(0, self.pool_capacity - len(captures) + len(self._kept[pool]))
            heapify(self._kept[pool])
            self._evict_kept(pool)
        for file_name in listing.others:
            if is_stale_file(file_name):
                self._directory.remove_file(file_name)
        self._refresh_at = self._clock() + KEY_REFRESH_SECONDS
        self._list_at = self._clock() + self._listing_seconds

    def remove_older(self, unix_seconds: float) -> None:
        """Remove the unlabelled captures from before a moment; a store that cannot be written is left as it is."""
        with suppress(OSError):
            listing = self._scan_files()
            for name in listing.complete:
                if listing.makes_room(name) and name.unix_seconds < int(unix_seconds):
                    self._remove_files(name)
        self._list_at = self._refresh_at = -math.inf  # the minimum keys have changed

    def _evict_kept(self, pool: str) -> None:
        """Remove the smallest keys beyond the room of a pool, as far as they are known; update its minimum key."""
        kept = self._kept[pool]
        while len(kept) > self._rooms[pool]:
            name = heappop(kept)[1]
            if self._directory.read_files([held_file_name(name)]):  # since the files were listed
                self._rooms[pool] = max(0, self._rooms[pool] - 1)
            else:
                self._remove_files(name)
        room = self._rooms[pool]
        self._min_keys[pool] = math.inf if room == 0 else kept[0][0] if len(kept) == room else 0.0

    def _scan_files(self) -> CaptureListing:
        """Return which files are captures, and which are not."""
        return sort_capture_files(self._directory.list_files())

    def _write_files(self, name: CaptureName, png: bytes, metadata: CaptureMetadata) -> None:
        """Write both files of a capture, or none."""
        try:
            self._directory.write_file(f"{name.stem}.png", png)
            self._directory.write_file(f"{name.stem}.json", metadata.to_json_bytes())
        except BaseException:
            with suppress(OSError):
                self._remove_files(name)
            raise

    def _remove_files(self, name: CaptureName) -> None:
        """Remove both files of a capture if they exist: first the JSON, without which it is not a capture."""
        self._directory.remove_file(f"{name.stem}.json")
        self._directory.remove_file(f"{name.stem}.png")

    def list_captures(self, pool: str | None = None, limit: int | None = 100) -> list[CaptureMetadata]:
        """Return the metadata of up to `limit` captures (None: all), the most useful to label first."""
        listing = self._scan_files()
        names = sorted((name for name in listing.complete if pool in (None, name.pool)), key=labelling_priority)
        limit, self.skipped_files = len(names) if limit is None else limit, len(listing.others)
        listed: list[CaptureMetadata] = []
        while names and len(listed) < limit:
            part, names = names[: limit - len(listed)], names[limit - len(listed) :]
            contents = self._directory.read_files([f"{name.stem}.json" for name in part])
            valid = [metadata for name in part if (metadata := parse_metadata(name, contents.get(f"{name.stem}.json")))]
            listed, self.skipped_files = listed + valid, self.skipped_files + len(part) - len(valid)
        return listed

    def read_pngs(self, since: float = 0) -> list[bytes]:
        """Read the images of all captures from a Unix time on as PNG bytes, without damaged ones."""
        captures = self._read_captures(sorted(self._scan_files().complete, key=lambda name: name.id))
        return [png for _, metadata, png in captures if metadata.at >= since]

    def read_images(self, capture_ids: Collection[str]) -> dict[str, bytes]:
        """Read the images of captures as PNG bytes by id, without those that are gone or damaged."""
        names = [name for name in self._scan_files().complete if name.id in capture_ids]
        return {metadata.id: png for _, metadata, png in self._read_captures(names)}

    def read_png(self, capture_id: str) -> bytes:
        """Read the image of a capture as PNG bytes."""
        return self._find_capture(capture_id)[2]

    def label_capture(self, capture_id: str, class_name: str, classes: Sequence[str]) -> CaptureMetadata:
        """Give a capture a label, replacing an earlier one, and return its metadata."""
        require_class(class_name, classes)
        name, metadata, png = self._find_capture(capture_id)
        metadata = replace(metadata, label_given=class_name)
        if name.labelled:
            self._directory.write_file(f"{name.stem}.json", metadata.to_json_bytes())
        else:
            self._write_files(name._replace(labelled=True), png, metadata)
            self._remove_files(name)
        return metadata

    def _find_capture(self, capture_id: str) -> tuple[CaptureName, CaptureMetadata, bytes]:
        """Return the name, metadata and PNG of a capture."""
        require_capture_id(capture_id)
        for _ in range(2):  # a label given between the listing and the reading changes the file names
            if captures := self._read_captures([name for name in self._scan_files().complete if name.id == capture_id]):
                return captures[0]
        raise CaptureNotFound("capture-missing", not_found_message(capture_id))

    def _read_captures(self, names: Sequence[CaptureName]) -> list[tuple[CaptureName, CaptureMetadata, bytes]]:
        """Return the name, metadata and PNG of those captures in `names` that are not damaged."""
        contents = self._directory.read_files([f"{name.stem}.{suffix}" for name in names for suffix in ("json", "png")])
        captures = []
        for name in names:
            metadata, png = parse_metadata(name, contents.get(f"{name.stem}.json")), contents.get(f"{name.stem}.png")
            if metadata and png and is_valid_png(png):
                captures.append((name, metadata, png))
        return captures

    def label_from_csv(self, csv_text: str, classes: Sequence[str]) -> int:
        """Apply the labels of a CSV of id,label and return their number; apply none if a row is wrong."""
        rows, labels = parse_label_csv(csv_text), dict[str, tuple[int, str]]()
        ids = {capture_id for _, capture_id, _ in rows}
        captures = self._read_captures([name for name in self._scan_files().complete if name.id in ids])
        existing = {name.id for name, _, _ in captures}
        for row, capture_id, class_name in rows:
            try:
                require_capture_id(capture_id)
                require_class(class_name, classes)
            except EquipoiseError as error:  # never as CaptureNotFound: the CSV is wrong, not the request
                raise EquipoiseError(error.code, f"row {row}: {error.problem}", error.remedy) from None
            if capture_id not in existing:
                raise EquipoiseError("capture-missing", f"row {row}: {not_found_message(capture_id)}")
            if capture_id in labels:
                first_row = labels[capture_id][0]
                raise EquipoiseError(
                    "labels-invalid", f"row {row}: {capture_id} already has a label in row {first_row}"
                )
            labels[capture_id] = row, class_name
        for capture_id, (_, class_name) in labels.items():
            self.label_capture(capture_id, class_name, classes)
        return len(labels)

    def export_labelled(
        self,
        out: Path,
        classes: Sequence[str] | None = None,
        since: float = 0,
        labels_by_id: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, int]:
        """Write labelled captures as out/CLASS/ID.png, for --workload folder, and return their count by class.

        Labels that are not in `classes` are left out, because several models may share a location; so are requests
        from before `since`, in seconds since 1970. `labels_by_id` are further labels, by the id of the capture.
        """
        listing = self._scan_files()
        labelled = [name for name in listing.complete if name.labelled or name.id in labels_by_id]
        captures = self._read_captures(sorted(labelled))
        self.skipped_files = len(listing.others) + len(labelled) - len(captures)
        selected = [
            (label, name.id, png)
            for name, metadata, png in captures
            if (label := labels_by_id.get(name.id, metadata.label_given)) is not None
            and (classes is None or label in classes)
            and metadata.at >= since
        ]
        counts = Counter(label for label, _, _ in selected)
        if not counts:
            among = "" if classes is None else f" as {format_class_list(classes)}"
            raise EquipoiseError(
                "captures-empty", f"no capture in {self.location} is labelled{among}: there is nothing to export"
            )
        for label in counts:
            require_folder_name(label)
        with atomic_folder(out) as folder:
            for label in counts:
                (folder / label).mkdir()
            for label, capture_id, png in selected:
                (folder / label / f"{capture_id}.png").write_bytes(png)
        return dict(sorted(counts.items()))
