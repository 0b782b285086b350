"""How much one client may ask of a replica."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Beyond these a request is refused, with a sentence that names the limit."""

    body_bytes: int = 8 << 20
    """of one request"""
    bodies_bytes: int = 32 << 20
    """of all requests that are being read at a time"""
    read_seconds: float = 10.0
    """for a request to arrive"""
    wait_seconds: float = 10.0
    """from its arrival to its turn"""
    waiting: int = 128
    """requests that wait for their turn"""
    pixels: int = 4_000_000
    """of an encoded picture: what it says of itself, before it is decoded"""
    batch: int = 32
    """pictures that a model is given at once"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"limit {name} must be above 0, got {value}")
