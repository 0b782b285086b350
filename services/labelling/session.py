"""Labelling session: a folder of pictures, their labels, the people at work, and a model's first guesses."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from equipoise.captures.file_listing import hold_capture
from equipoise.errors import EquipoiseError
from equipoise.labels.guesses import Guess
from equipoise.labels.leases import LeaseBook
from equipoise.labels.picture_labels import PictureLabels, boxes_to_json
from equipoise.labels.queue import LabelQueue
from equipoise.labels.store import LabelStore
from equipoise.type_aliases import JsonObject

Guesser = Callable[[Path], Guess | None]
MAX_GUESS_FAILURES = 3  # in a row, after which no model is asked any more

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class LabelSession:
    """What the page of `equipoise label` works on."""

    images: Path
    """folder of the pictures"""
    store: LabelStore
    kind: str
    """boxes, or class for one class per picture"""
    guesses: dict[str, Guess] = field(default_factory=dict)
    guesser: Guesser | None = None
    """model that is asked for a guess where none is known"""
    adds_guessed_classes: bool = True
    """add the classes of guesses to those of the session; otherwise what is guessed beyond these is left out"""
    takes_pictures: bool = True
    """pictures may be added on the page"""

    def __post_init__(self) -> None:
        self.leases = LeaseBook(self.store)
        self.queue = self.build_queue()
        self._guess_failures = 0
        self._guess_lock = threading.Lock()

    def build_queue(self) -> LabelQueue:
        """Return the queue of the pictures."""
        return LabelQueue(self.images, self.store, self.leases, self.guesses)

    def page_facts(self) -> dict[str, Any]:
        """Return the kind, and an id under which a browser keeps drafts of this folder of labels and no other."""
        session_id = sha256(str(self.store.folder.absolute()).encode()).hexdigest()[:16]
        return {"kind": self.kind, "session_id": session_id, "takes_pictures": self.takes_pictures}

    def describe_queue(self, holder: str) -> JsonObject:
        """Return the numbers of pictures, the kind and the classes, as the page shows them."""
        state = self.queue.state(holder)
        numbers = {"total": state.total, "labelled": state.labelled, "with_others": state.with_others}
        classes = self.store.read_classes()[1]
        return {**numbers, "broken": dict(state.broken), "kind": self.kind, "classes": classes}

    def open_next(self, holder: str, skip: Collection[str]) -> JsonObject:
        """Lease the next picture; return it with its guess, or null if nothing is left, and the queue's numbers."""
        name = self.queue.take_next(holder, skip)
        return {"document": self.open_picture(name, holder) if name else None, "queue": self.describe_queue(holder)}

    def open_picture(self, name: str, holder: str) -> JsonObject:
        """Lease a picture, unless somebody else has it; return its size, labels and the model's guess.

        The captures of a service make room for others: one that somebody has opened stays.
        """
        copy = self.queue.page_copy(name)
        hold_capture(self.queue.require_picture(name))
        is_taken = not self.leases.take_picture(name, holder)
        labels = self.store.read_labels(name)
        guess = None if labels else self.find_guess(name)
        size = {"picture": name, "width": copy.width, "height": copy.height}
        guess_json = guess.clip_to(copy.width, copy.height).to_json() if guess else None
        return {**size, "is_taken": is_taken, "guess": guess_json, **describe_labels(labels)}

    def find_guess(self, name: str) -> Guess | None:
        """Return the guess for a picture, of the session's kind and classes; None without one."""
        guess = self._look_up_guess(name)
        if guess is None or (guess.boxes is not None) != (self.kind == "boxes"):
            return None
        classes = self.store.read_classes()[1]
        if self.adds_guessed_classes and {*guess.class_names()} - {*classes}:
            classes = self.store.add_classes(self.kind, guess.class_names())
        return guess.keep_classes(classes)

    def _look_up_guess(self, name: str) -> Guess | None:
        """Return the guess that is known, or ask the model; None if it does not answer."""
        with self._guess_lock:  # a model that answers slowly is not asked twice
            if name in self.guesses or self.guesser is None or self._guess_failures >= MAX_GUESS_FAILURES:
                return self.guesses.get(name)
            try:
                guess = self.guesser(self.queue.require_picture(name))
            except (EquipoiseError, OSError) as error:
                self._guess_failures += 1
                logger.warning("no first guess for %s: %s", name, error)
                return None
            self._guess_failures = 0
            if guess is not None:
                self.guesses[name] = guess
        return guess

    def guess_ahead(self, is_stopped: Callable[[], bool]) -> None:
        """Ask the model about all pictures without labels, so that the least certain ones come first."""
        for name in self.queue.list_unlabelled():
            if is_stopped() or self._guess_failures >= MAX_GUESS_FAILURES:
                return
            self._look_up_guess(name)

    def save_labels(self, labels: PictureLabels, base_revision: int) -> PictureLabels:
        """Save the labels of a picture; refuse another kind, a class that is not known, and a picture that is not."""
        if labels.kind != self.kind:
            raise EquipoiseError("labels-invalid", f"{labels.picture} is to be labelled with {self.kind}")
        copy = self.queue.page_copy(labels.picture)
        if (copy.width, copy.height) != (labels.width, labels.height):
            found, expected = f"{labels.width}x{labels.height}", f"{copy.width}x{copy.height}"
            raise EquipoiseError(
                "labels-invalid", f"{labels.picture} has {expected} pixels, the labels are for {found}"
            )
        unknown = set(labels.class_names()) - {*self.store.read_classes()[1]}
        if unknown:
            raise EquipoiseError("class-unknown", f"there is no class {min(unknown)!r}", "add it to the classes first")
        return self.store.save_labels(labels, base_revision)


def describe_labels(labels: PictureLabels | None) -> JsonObject:
    """Return the labels of a picture as the page gets them; revision 0 and null if it has none."""
    if labels is None:
        return {"revision": 0, "author": "", "boxes": None, "label": None}
    boxes = None if labels.boxes is None else boxes_to_json(labels.boxes)
    return {"revision": labels.revision, "author": labels.author, "boxes": boxes, "label": labels.label}
