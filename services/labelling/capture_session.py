"""Labelling session on the captures of a service, whose own answers are the first guesses."""

from collections.abc import Sequence
from pathlib import Path

from equipoise.captures.store import CaptureStore
from equipoise.labels.capture_queue import CaptureLabelStore, CaptureQueue
from equipoise.labels.captured_guesses import CapturedGuesser
from equipoise.labels.queue import LabelQueue
from services.labelling.session import LabelSession


class CaptureLabelSession(LabelSession):
    """What a page of captures works on."""

    def build_queue(self) -> LabelQueue:
        """Return the queue of the captures."""
        return CaptureQueue(self.images, self.store, self.leases, self.guesses)


def open_capture_session(captures: Path, labels: Path, kind: str, classes: Sequence[str]) -> CaptureLabelSession:
    """Return the session of a folder of captures; classes that are new are added to those of the labels."""
    captures.mkdir(parents=True, exist_ok=True)
    store = CaptureLabelStore(labels, CaptureStore(str(captures)))
    store.add_classes(kind, classes)
    return CaptureLabelSession(
        images=captures,
        store=store,
        kind=kind,
        guesser=CapturedGuesser(),
        adds_guessed_classes=False,
        takes_pictures=False,
    )
