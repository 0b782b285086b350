"""Boxes that a detector finds: what a service answers, a capture keeps and a page draws."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundBox:
    """Box that a detector finds, in pixels of the upright picture."""

    label: str
    """name of its class"""
    score: float
    """how sure the detector is, from 0 to 1"""
    x: float
    """left side, from the left of the picture"""
    y: float
    """top side, from the top of the picture"""
    width: float
    """width of the box"""
    height: float
    """height of the box"""
