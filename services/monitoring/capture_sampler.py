"""Sample a few answered images for labelling, in a thread of its own so that no request waits for the store."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.drift.monitor.stream_key import StreamKey

SAMPLES_PER_BATCH = {"usual": 1, "drift": 8}  # images by pool
MAX_PENDING_OFFERS = 32  # beyond these, images are dropped while the store is slow


class CaptureSampler:
    """Offers sampled images to the capture store, one at a time."""

    def __init__(self, capture_store: CaptureStore) -> None:
        self.capture_store = capture_store
        self.executor = ThreadPoolExecutor(1, "captures")
        self.offer_slots = threading.BoundedSemaphore(MAX_PENDING_OFFERS)

    def offer_samples(
        self,
        stream: StreamKey,
        is_drifting: bool,
        classes: list[str],
        images: NDArray[np.uint8],
        logits: NDArray[Any],
        sources: list[str | None],
    ) -> None:
        """Offer a random sample of a batch to the capture store, which decides which of them it keeps."""
        pool = "drift" if is_drifting else "usual"
        if images.shape[1] not in (1, 3):
            return
        for index in random.sample(range(len(images)), min(SAMPLES_PER_BATCH[pool], len(images))):
            if not self.offer_slots.acquire(blocking=False):
                return
            scores = dict(zip(classes, softmax(logits[index].astype(np.float64)).tolist(), strict=True))
            label = classes[int(logits[index].argmax())]
            fields = {"picture": images[index].copy(), "model": stream.model, "version": stream.version, "label": label}
            captured = CapturedRequest(**fields, scores=scores, source=sources[index], pool=pool)
            self.executor.submit(self._offer, captured)

    def _offer(self, request: CapturedRequest) -> None:
        try:
            self.capture_store.offer(request)
        finally:
            self.offer_slots.release()
