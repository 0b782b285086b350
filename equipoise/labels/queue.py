"""Queue of a labelling session: which picture a person gets next, and which ones cannot be read."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from equipoise.captures.capture import IMAGE_FILE_PATTERN
from equipoise.errors import EquipoiseError
from equipoise.images.orientation import IMAGE_SUFFIXES
from equipoise.labels.guesses import Guess
from equipoise.labels.leases import LeaseBook
from equipoise.labels.pictures import PageCopy, list_pictures, make_page_copy
from equipoise.labels.store import LabelStore

MAX_PAGE_COPIES = 12  # kept in memory, up to a megabyte each
MAX_DECODING = 2  # pictures decoded at once: one of 80 megapixels takes 240 MB


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """Numbers of a queue's pictures."""

    total: int
    labelled: int
    with_others: int
    """pictures without labels that other people have"""
    broken: Mapping[str, str]
    """reason why a picture cannot be read, by its name"""


class LabelQueue:
    """Pictures of a folder in the order in which their labels are most useful."""

    def __init__(self, folder: Path, store: LabelStore, leases: LeaseBook, guesses: dict[str, Guess]) -> None:
        self.folder, self.store, self.leases = folder, store, leases
        self.guesses = guesses
        """guesses by picture; more may be added at any time"""
        self.broken: dict[str, str] = {}
        self._copies: dict[str, tuple[int, PageCopy]] = {}
        self._decoding = threading.Semaphore(MAX_DECODING)

    def list_names(self) -> list[str]:
        """Return the names of all pictures: first those without labels, the model's least certain guess first."""
        labelled = self.store.list_labelled()
        return sorted(self.list_pictures(), key=lambda name: (name in labelled, self.priority(name), name))

    def list_unlabelled(self) -> list[str]:
        """Return the names of the pictures without labels."""
        labelled = self.store.list_labelled()
        return [name for name in self.list_pictures() if name not in labelled]

    def list_pictures(self) -> list[str]:
        """Return the names of all pictures of the folder, in any order."""
        return list_pictures(self.folder)

    def priority(self, name: str) -> tuple[bool, float]:
        """Return a sort key that puts the pictures most useful to label first.

        Captures from before an alarm come last. Then the confidence of the guess counts; pictures without a guess come
        after those with one.
        """
        guess = self.guesses.get(name)
        return is_usual_capture(name), guess.confidence if guess else 2.0

    def take_next(self, holder: str, skip: Collection[str] = ()) -> str | None:
        """Lease the first picture without labels that nobody else has, and return its name; None if there is none.

        A holder gets the picture back that they have already. Pictures in `skip`, and those that turn out to be broken,
        are passed over.
        """
        while (name := self._lease_first(holder, skip)) is not None:
            try:
                self.page_copy(name)
            except (EquipoiseError, OSError) as error:
                self.broken.setdefault(name, describe_failure(error))
                continue
            return name
        return None

    def _lease_first(self, holder: str, skip: Collection[str]) -> str | None:
        """Lease the first picture that is neither labelled, with others, broken nor to be skipped."""
        passed_over = {*skip, *self.broken}
        with self.store.lock():
            leases = self.leases.read_leases()
            labelled = self.store.list_labelled()
            open_names = [n for n in self.list_pictures() if n not in labelled and n not in passed_over]
            mine = [n for n in open_names if leases.get(n, ("",))[0] == holder]
            free = [n for n in open_names if n not in leases]
            name = min(mine or free, key=lambda n: (self.priority(n), n), default=None)
            if name is not None:
                self.leases.take_while_locked(name, holder, leases)
        return name

    def state(self, holder: str = "") -> QueueState:
        """Count the pictures of the queue."""
        labelled, names = self.store.list_labelled(), self.list_pictures()
        leases = self.leases.read_leases()
        others = [n for n, (other, _) in leases.items() if other != holder and n not in labelled]
        num_labelled = sum(n in labelled for n in names)
        return QueueState(total=len(names), labelled=num_labelled, with_others=len(others), broken=dict(self.broken))

    def require_picture(self, name: str) -> Path:
        """Return the path of a picture of the folder; refuse any other name."""
        self.store.label_path(name)  # refuses names that lead out of the folder
        path = self.folder / name
        if not is_picture_of(self.folder, name):
            raise EquipoiseError("path-missing", f"there is no picture {name[:80]!r}", "it was removed, or renamed")
        return path

    def page_copy(self, name: str) -> PageCopy:
        """Return the copy of a picture for a page; remember a broken picture, with the reason, and refuse it."""
        path = self.require_picture(name)
        changed_at = path.stat().st_mtime_ns
        cached = self._copies.get(name)
        if cached and cached[0] == changed_at:
            return cached[1]
        try:
            require_utf8_name(name)
            with self._decoding:
                copy = make_page_copy(path)
        except (EquipoiseError, OSError) as error:
            self.broken[name] = describe_failure(error)
            raise
        self.broken.pop(name, None)
        self._copies[name] = changed_at, copy
        for oldest in list(self._copies)[:-MAX_PAGE_COPIES]:
            self._copies.pop(oldest, None)
        return copy


def require_utf8_name(name: str) -> None:
    """Refuse a file name in another encoding, such as from an old archive: a browser cannot ask for it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise EquipoiseError("image-undecodable", "its name is not UTF-8", "rename it") from None


def describe_failure(error: EquipoiseError | OSError) -> str:
    """Return why a picture cannot be read, without its path, which the page shows beside it."""
    return error.problem if isinstance(error, EquipoiseError) else error.strerror or type(error).__name__


def is_usual_capture(name: str) -> bool:
    """Return whether a picture is a request that a service kept while there was no alarm."""
    match = IMAGE_FILE_PATTERN.fullmatch(PurePosixPath(name).name)
    return match is not None and match[1] == "usual"


def is_picture_of(folder: Path, name: str) -> bool:
    """Return whether a name is that of a picture's file below the folder."""
    path = folder / name
    is_inside = path.parent.resolve().is_relative_to(folder.resolve())
    return is_inside and path.name.lower().endswith(IMAGE_SUFFIXES) and path.is_file()
