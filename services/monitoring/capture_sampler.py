"""Keeps a few of the requests for labelling, apart from those who wait for answers."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from equipoise.captures.capture import Answered
from equipoise.captures.store import Captures

OFFERED = {"usual": 1, "drift": 8}  # of the pictures that are looked at together
MOST_WAITING = 32  # offers, while a slow store takes its time


class Keeper:
    """Offers requests to the captures, one at a time."""

    def __init__(self, captures: Captures) -> None:
        self.captures = captures
        self.thread = ThreadPoolExecutor(1, "captures")
        self.waiting = threading.BoundedSemaphore(MOST_WAITING)

    def choose(
        self,
        stream: str,
        drifts: bool,
        classes: list[str],
        pictures: NDArray[np.uint8],
        logits: NDArray[Any],
        sources: list[str | None],
    ) -> None:
        """A few of some pictures, by chance: which of them stay is for the captures to say."""
        pool = "drift" if drifts else "usual"
        if pictures.shape[1] not in (1, 3):
            return
        model, _, version = stream.partition("/")
        for place in random.sample(range(len(pictures)), min(OFFERED[pool], len(pictures))):
            if not self.waiting.acquire(blocking=False):
                return
            scores = dict(zip(classes, softmax(logits[place].astype(np.float64)).tolist(), strict=True))
            label = classes[int(logits[place].argmax())]
            one = {"picture": pictures[place].copy(), "model": model, "version": version, "label": label}
            self.thread.submit(self._offer, Answered(**one, scores=scores, source=sources[place], pool=pool))

    def _offer(self, one: Answered) -> None:
        try:
            self.captures.offer(one)
        finally:
            self.waiting.release()
