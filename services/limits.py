"""Limits on what clients may send to a replica."""

from dataclasses import dataclass

from equipoise.errors import EquipoiseError

MAX_LISTED_CAPTURES, DEFAULT_LISTED_CAPTURES = 1000, 100  # captures in one reply


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits beyond which a request is rejected, with a sentence that names the limit."""

    body_bytes: int = 8 << 20
    """bytes in the body of one request"""
    bodies_bytes: int = 32 << 20
    """bytes in the bodies of all requests that are being read at the same time"""
    read_seconds: float = 10.0
    """seconds for a request to arrive completely"""
    wait_seconds: float = 10.0
    """seconds from the arrival of a request to the start of its batch"""
    waiting: int = 128
    """requests of one model that wait for a batch"""
    pixels: int = 4_000_000
    """pixels of an encoded image, as its header gives them before it is decoded"""
    batch: int = 32
    """images, rows or windows of text that a model computes in one batch"""
    characters: int = 10_000
    """characters of a text"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise EquipoiseError("option-range", f"limit {name} must be above 0, got {value}")
