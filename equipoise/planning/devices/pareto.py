"""Pareto front of points of time and cost, and its knee."""

from collections.abc import Sequence

import numpy as np


def find_front_indices(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other beats in both coordinates, by the first coordinate."""
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: points[index]):
        if not front or points[index][1] < points[front[-1]][1]:
            front.append(index)
    return front


def find_knee_index(front: Sequence[tuple[float, float]]) -> int | None:
    """Return the index of the point furthest from the line between the ends, in logs; None with fewer than three."""
    if len(front) < 3:
        return None
    points = np.log(front)
    scaled = (points - points.min(0)) / np.ptp(points, axis=0)
    return int(np.argmin(scaled.sum(1)))
