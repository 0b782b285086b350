"""Streams of images that a drift detector is fed with, step by step."""

import numpy as np
import torch

from equipoise.drift.detector import StreamDetector
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

RUN_LENGTH_IMAGES = 20_000.0  # images without drift per false alarm


STEP_IMAGES = 16


def apply_warm_light(images):
    gain = torch.tensor(blackbody_gain(np.array([4500.0]))[0]).float().view(3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(images) * gain)


def sum_by_step(images, step_size=STEP_IMAGES):
    """Return the sums of consecutive steps of images."""
    base, features = shapes_profile().baseline, extract_shape_features(images)
    return [
        base.sum_features(features.select([*range(first, first + step_size)]))
        for first in range(0, len(features) - step_size + 1, step_size)
    ]


def feed_steps(detector, steps, start_seconds=0.0):
    """Feed a detector one step per second, and return the indices of the steps that raised an alarm."""
    return [index for index, row in enumerate(steps) if detector.add_sums(row, start_seconds + index)]


def run_detector(*parts, run_length=RUN_LENGTH_IMAGES):
    """Return a detector that has observed the parts of a stream in order."""
    detector = StreamDetector.start(shapes_profile(), run_length)
    for images in parts:
        feed_steps(detector, sum_by_step(images), detector.observed_images)
    return detector


def render_clean_images(count=1600, seed=40):
    return render_shapes(count, seed)[0]
