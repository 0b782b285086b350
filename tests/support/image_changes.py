"""Changes of images as a camera, a lamp or a file format makes them, by cause."""

import io

import numpy as np
import torch
from PIL import Image, ImageEnhance

from equipoise.drift.diagnosis.root_cause import (
    diagnose_window,
)
from equipoise.drift.diagnosis.window import window_from_sums
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile


def build_pil_transform(change):
    """Return a transform of image tensors that applies `change` to each as a PIL image."""

    def transform(images):
        changed = [np.array(change(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
        return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)

    return transform


def build_jpeg_transform(quality):
    def compress(image):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return build_pil_transform(compress)


def build_linear_transform(change):
    """Return a transform of image tensors that applies `change` to linear light."""
    return lambda images: linear_to_srgb8(change(srgb8_to_linear(images)))


def build_lamp_transform(kelvin):
    gain = torch.tensor(blackbody_gain(np.array([float(kelvin)]))[0]).float().view(3, 1, 1)
    return build_linear_transform(lambda linear: linear * gain)


def build_tint_transform(stops):
    return build_linear_transform(lambda linear: linear * torch.tensor([1, 2**stops, 1]).view(3, 1, 1))


def build_brightness_transform(factor):
    return build_pil_transform(lambda image: ImageEnhance.Brightness(image).enhance(factor))


def build_contrast_transform(factor):
    return build_pil_transform(lambda image: ImageEnhance.Contrast(image).enhance(factor))


def build_veil_transform(share):
    return build_linear_transform(lambda linear: linear + share * (1 - linear))


def build_noise_transform(levels):
    def add_noise(images):
        grain = np.random.default_rng(0).normal(0, levels, images.shape)
        return torch.from_numpy(np.clip(images.numpy() + grain, 0, 255).round().astype(np.uint8))

    return add_noise


def render_clean_images(seed=500, count=100):
    return render_shapes(count, seed)[0]


def build_window(images):
    return window_from_sums(shapes_profile(), shapes_profile().baseline.sum_features(extract_shape_features(images)))


def diagnose_images(images):
    return diagnose_window(build_window(images), False)
