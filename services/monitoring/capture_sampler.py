"""Keeps a few of the requests for labelling, apart from those who wait for answers."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore

SAMPLES_PER_BATCH = {"usual": 1, "drift": 8}  # of the pictures that are looked at together
MAX_PENDING_OFFERS = 32  # offers, while a slow store takes its time


class CaptureSampler:
    """Offers requests to the captures, one at a time."""

    def __init__(self, capture_store: CaptureStore) -> None:
        self.capture_store = capture_store
        self.executor = ThreadPoolExecutor(1, "captures")
        self.offer_slots = threading.BoundedSemaphore(MAX_PENDING_OFFERS)

    def offer_samples(
        self,
        stream: str,
        is_drifting: bool,
        classes: list[str],
        images: NDArray[np.uint8],
        logits: NDArray[Any],
        sources: list[str | None],
    ) -> None:
        """A few of some pictures, by chance: which of them stay is for the captures to say."""
        pool = "drift" if is_drifting else "usual"
        if images.shape[1] not in (1, 3):
            return
        model, _, version = stream.partition("/")
        for place in random.sample(range(len(images)), min(SAMPLES_PER_BATCH[pool], len(images))):
            if not self.offer_slots.acquire(blocking=False):
                return
            scores = dict(zip(classes, softmax(logits[place].astype(np.float64)).tolist(), strict=True))
            label = classes[int(logits[place].argmax())]
            one = {"picture": images[place].copy(), "model": model, "version": version, "label": label}
            self.executor.submit(self._offer, CapturedRequest(**one, scores=scores, source=sources[place], pool=pool))

    def _offer(self, request: CapturedRequest) -> None:
        try:
            self.capture_store.offer(request)
        finally:
            self.offer_slots.release()
