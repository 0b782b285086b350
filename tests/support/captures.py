"""Captured requests for tests, and what a store holds."""

import io

import numpy as np
from PIL import Image

from equipoise.captures.capture import KEY_DIGITS, CapturedRequest

CLASSES = ["ant", "bee", "cat"]


def build_request(score=0.5, side=1, channels=3, seed=0, **fields):
    """Build a captured request that was predicted with this score."""
    image = np.random.default_rng(seed).integers(0, 256, (channels, side, side), np.uint8)
    scores = {"ant": score, "bee": 1 - score, "cat": 0.0}
    return CapturedRequest(
        **{"picture": image, "model": "m", "version": "v1", "label": "ant", "scores": scores} | fields
    )


def decode_png(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.array(image)


def read_sources(store):
    return sorted(int(capture.source) for capture in store.list_captures(limit=None))


def draw_keys(seed, weights):
    """Return the keys that a replica with this seed draws for requests of these weights."""
    rng = np.random.default_rng(seed)
    return [round(float((1 - rng.random()) ** (1 / weight)), KEY_DIGITS) for weight in weights]
