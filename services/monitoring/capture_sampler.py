"""Sample a few answered images for labelling, in a thread of its own so that no request waits for the store."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from equipoise.boxes.found_box import FoundBox
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.drift.monitor.stream_key import StreamKey

# images of a pass that are offered for labelling
SAMPLES_PER_BATCH = {"usual": 1, "drift": 8}  # images by pool
SECONDS_BETWEEN_USUAL = 0.5  # between two offers without an alarm: writing the files delays other requests
MAX_PENDING_OFFERS = 64  # beyond these, images are dropped while the store is slow
LISTING_SECONDS = 5.0  # between listings of the location, which take milliseconds of the interpreter


class CaptureSampler:
    """Offers sampled images to the capture store, one at a time."""

    def __init__(self, capture_store: CaptureStore, usual_seconds: float = SECONDS_BETWEEN_USUAL) -> None:
        """Create a sampler; `usual_seconds` is the least time between two offers while there is no alarm."""
        self.capture_store = capture_store
        self.usual_seconds = usual_seconds
        self.next_usual_at = 0.0
        """time of the monotonic clock from which an image may be offered again while there is no alarm"""
        self.traffic_samples: dict[tuple[StreamKey, bool], TrafficSample] = {}
        """samples by model, and by whether they are of requests since an alarm"""
        self.executor = ThreadPoolExecutor(1, "captures")
        self.offer_slots = threading.BoundedSemaphore(MAX_PENDING_OFFERS)

    def offer_samples(
        self,
        stream: StreamKey,
        alarm_seconds: float | None,
        classes: list[str],
        images: NDArray[np.uint8],
        logits: NDArray[Any],
        sources: list[str | None],
        encoded_images: list[bytes | None],
        boxes: Sequence[tuple[FoundBox, ...]] | None = None,
    ) -> None:
        """Offer a random sample of a batch for labelling and for the sample of the traffic; since an alarm, all of it.

        The stores decide which of them they keep. `alarm_seconds` is the Unix time of the alarm, None without one.
        `boxes` are those found in each image, if the model is a detector.
        """
        pool = "usual" if alarm_seconds is None else "drift"
        if images.shape[1] not in (1, 3) or not len(images):
            return
        if pool == "usual":
            now = time.monotonic()
            if now < self.next_usual_at:
                return
            self.next_usual_at = now + self.usual_seconds
        shuffled = random.sample(range(len(images)), len(images))
        num_for_labelling = min(SAMPLES_PER_BATCH[pool], len(images))
        for position, index in enumerate(shuffled if alarm_seconds is not None else shuffled[:num_for_labelling]):
            if not self.offer_slots.acquire(blocking=False):
                return
            scores = dict(zip(classes, softmax(logits[index].astype(np.float64)).tolist(), strict=True))
            label = classes[int(logits[index].argmax())]
            fields: dict[str, Any] = {
                "picture": images[index].copy(),
                "model": stream.model,
                "version": stream.version,
                "label": label,
            }
            fields |= {"source": sources[index], "encoded": encoded_images[index]}
            fields |= {"boxes": boxes[index]} if boxes else {}
            captured = CapturedRequest(**fields, scores=scores, pool=pool)
            self.executor.submit(self._offer, captured, stream, alarm_seconds, position < num_for_labelling)

    def _offer(
        self, request: CapturedRequest, stream: StreamKey, alarm_seconds: float | None, for_labelling: bool
    ) -> None:
        try:
            if for_labelling:
                self.capture_store.offer(request)
            key = stream, alarm_seconds is not None
            if key not in self.traffic_samples:
                self.traffic_samples[key] = TrafficSample(
                    self.capture_store.location, stream.version, key[1], LISTING_SECONDS
                )
            self.traffic_samples[key].offer(replace(request, is_uniform=True), alarm_seconds or 0.0)
        finally:
            self.offer_slots.release()
