"""First guesses of a published model that the labelling server runs itself."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from equipoise.errors import EquipoiseError
from equipoise.labels.guesses import Guess, parse_guess


class BundleGuesser:
    """Published model of images, in this process."""

    def __init__(self, location: str, kind: str) -> None:
        """Load the bundle; refuse one that does not answer with labels of this kind."""
        from equipoise.bundle.bundle import load_bundle  # PyTorch takes seconds to import, and not every page needs it
        from equipoise.bundle.kinds.image_bundle import ImageBundle

        bundle = load_bundle(location)
        self.classes: Sequence[str] = bundle.classes
        self.find_boxes: Callable[[Sequence[Path]], Any] | None = getattr(bundle, "find_boxes", None)
        self.image_bundle = bundle if isinstance(bundle, ImageBundle) else None
        if (kind == "boxes") != (self.find_boxes is not None) or not (self.find_boxes or self.image_bundle):
            answer = "boxes in images" if kind == "boxes" else "one class per image"
            raise EquipoiseError(
                "bundle-kind",
                f"cannot guess {kind} with --bundle {location}: its model does not answer with {answer}",
                "give another bundle, or the other --kind",
            )
        self.lock = threading.Lock()  # one picture at a time: the programs are not shared between threads

    def __call__(self, path: Path) -> Guess:
        """Return what the model sees in a picture."""
        with self.lock:
            if self.find_boxes is not None:
                (boxes,) = self.find_boxes([path])
                return parse_guess({"boxes": [asdict(box) for box in boxes]}, f"the boxes of {path}")
            if self.image_bundle is None:
                raise TypeError("a guesser has a model of boxes or of classes")
            prediction = self.image_bundle.predict(self.image_bundle.preprocess([path]))
        return Guess(label=prediction.labels[0], scores=(float(prediction.scores.max()),))
