"""What can happen to a camera and its light, in physical units, as it would change the pictures of a reference.

Each kind of change is tried at several sizes, so that later a window of requests can be told by which change, and how
much of it, it would have come about.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from equipoise.images import camera as light
from equipoise.images.augment import viewed, whole
from equipoise.images.png import through_jpeg

NAMES = (
    *("colour temperature", "tint", "exposure", "contrast", "reflection", "blur", "noise", "compression", "geometry"),
    *("label shift", "new class", "features"),
)
"""all that a verdict may name; the last is what no chart names"""
SPOT = 0.35  # radius of a highlight, of half a picture
PLACES = (-0.6, 0.0, 0.6)  # of a highlight's middle, down and to the right

Change = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Kind:
    """One way in which pictures may change, and the sizes at which it is tried."""

    cause: str
    detail: str
    unit: str
    none: float
    """the size at which nothing changes"""
    sizes: tuple[float, ...]
    change: Change
    colours: bool = False
    """whether it takes pictures with colours"""


def lamp(pictures: Tensor, kelvin: float) -> Tensor:
    """Under light of another colour temperature; the camera stays balanced for 6500 K."""
    linear = light.decoded(pictures)
    return light.encoded(linear * light.column(light.tint(np.full(len(linear), kelvin)), linear))


def balanced(pictures: Tensor, kelvin: float) -> Tensor:
    """Under such light by red and blue alone: a camera balanced for another, green as it was."""
    red, _, blue = light.tint(np.array([kelvin]))[0]
    gain = torch.tensor([(red / blue) ** 0.5, 1, (blue / red) ** 0.5], dtype=torch.float32).view(1, 3, 1, 1)
    return light.encoded(light.decoded(pictures) * gain)


def greener(pictures: Tensor, stops: float) -> Tensor:
    """Under light with more green, or less."""
    gain = torch.tensor([1, 2**stops, 1]).view(1, 3, 1, 1)
    return light.encoded(light.decoded(pictures) * gain)


def exposed(pictures: Tensor, stops: float) -> Tensor:
    """With more light, or less."""
    return light.encoded(light.decoded(pictures) * 2**stops)


def contrasted(pictures: Tensor, factor: float) -> Tensor:
    """With each value moved from the picture's mean grey."""
    values = pictures.float()
    mean = values.mean((1, 2, 3), keepdim=True)
    return whole(mean + factor * (values - mean))


def veiled(pictures: Tensor, share: float) -> Tensor:
    """With light reflected all over."""
    linear = light.decoded(pictures)
    return light.encoded(light.veiled(linear, torch.tensor(share), torch.tensor(1.0)))


def highlight(down: float, right: float) -> Change:
    """With a lamp reflected at a place."""

    def change(pictures: Tensor, brightness: float) -> Tensor:
        linear = light.decoded(pictures)
        centre = np.tile([down, right], (len(linear), 1))
        return light.encoded(
            linear + brightness * light.spot(linear.shape[2], linear.shape[3], centre, SPOT).to(linear)
        )

    return change


def blurred(pictures: Tensor, sigma: float) -> Tensor:
    """Out of focus."""
    linear = light.decoded(pictures)
    return light.encoded(light.blurred(linear, np.full(len(linear), sigma), sigma))


def noisy(pictures: Tensor, levels: float) -> Tensor:
    """With grain of some levels of 255."""
    values = pictures.float()
    return whole(values + levels * light.grain(np.linspace(0, 1, len(values)), values))


def compressed(pictures: Tensor, quality: float) -> Tensor:
    """Through JPEG and back."""
    return torch.stack([torch.from_numpy(through_jpeg(one, round(quality))) for one in pictures])


def turned(pictures: Tensor, degrees: float) -> Tensor:
    """Turned about the middle; by quarters exactly."""
    if degrees % 90 == 0:
        return torch.rot90(pictures, int(degrees // 90), (2, 3)).contiguous()
    angle = np.deg2rad(degrees)
    return viewed(pictures, view(len(pictures), [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]))


def washed(pictures: Tensor, share: float) -> Tensor:
    """With each colour moved to its grey; below 0, away from it."""
    values = pictures.float()
    return whole(torch.lerp(values, values.mean(1, keepdim=True), share))


def swapped(pictures: Tensor, _: float) -> Tensor:
    """With red for blue and blue for red: a client that sends BGR."""
    return pictures.flip(1)


def moved(down: float, right: float) -> Change:
    """Shifted by a share of the side; what comes in repeats the edge."""

    def change(pictures: Tensor, share: float) -> Tensor:
        steps = [round(share * way * side) for way, side in zip((down, right), pictures.shape[2:], strict=True)]
        pad = [max(steps[1], 0), max(-steps[1], 0), max(steps[0], 0), max(-steps[0], 0)]
        height, width = pictures.shape[2:]
        framed = F.pad(pictures.float(), pad, mode="replicate").to(torch.uint8)
        return framed[:, :, max(-steps[0], 0) :, max(-steps[1], 0) :][:, :, :height, :width]

    return change


def zoomed(pictures: Tensor, factor: float) -> Tensor:
    """Seen from nearer (above 1), or from farther off, with black around."""
    return viewed(pictures, view(len(pictures), np.eye(2) / factor))


def mirrored(axis: int) -> Change:
    """Left to right, or upside down."""
    return lambda pictures, _: pictures.flip(axis)


def undone(pictures: Tensor, cause: str, detail: str, value: float) -> Tensor | None:
    """Pictures as they would be without a cause of such a size; None where what is lost cannot be brought back."""
    if cause == "colour temperature":
        gain = light.tint(np.array([value]))[0]
        return light.encoded(light.decoded(pictures) / torch.tensor(gain, dtype=torch.float32).view(1, 3, 1, 1))
    if cause == "tint":
        return greener(pictures, -value)
    if cause == "exposure":
        return exposed(pictures, -value)
    if cause == "contrast":
        return contrasted(pictures, 1 / value)
    if cause == "reflection" and detail == "all over" and value < 1:
        return light.encoded((light.decoded(pictures) - value) / (1 - value))
    return None


def view(count: int, matrix: Any) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A 2x2 matrix as the views that pictures are seen by."""
    whole_view = np.eye(3)
    whole_view[:2, :2] = matrix
    return np.tile(whole_view, (count, 1, 1))


def kinds() -> list[Kind]:
    """Everything that is tried."""
    ways = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}
    warm, cool = (5500.0, 4500.0, 3500.0, 2700.0), (7500.0, 9000.0, 12000.0, 20000.0)
    return [
        Kind("colour temperature", "warmer", "K", 6500, warm, lamp, colours=True),
        Kind("colour temperature", "cooler", "K", 6500, cool, lamp, colours=True),
        Kind("colour temperature", "warmer", "K", 6500, warm, balanced, colours=True),
        Kind("colour temperature", "cooler", "K", 6500, cool, balanced, colours=True),
        Kind("tint", "greener", "stops", 0, (0.1, 0.25, 0.5), greener, colours=True),
        Kind("tint", "magenta", "stops", 0, (-0.1, -0.25, -0.5), greener, colours=True),
        Kind("exposure", "brighter", "stops", 0, (0.25, 0.5, 1, 2), exposed),
        Kind("exposure", "darker", "stops", 0, (-0.25, -0.5, -1, -2, -3), exposed),
        Kind("contrast", "lower", "times", 1, (0.8, 0.6, 0.4, 0.2), contrasted),
        Kind("contrast", "higher", "times", 1, (1.25, 1.6, 2.5), contrasted),
        Kind("features", "colours washed out", "of their saturation", 0, (0.3, 0.6, 1), washed, colours=True),
        Kind("features", "colours too strong", "of their saturation", 0, (-0.3, -0.6, -1), washed, colours=True),
        Kind("features", "red and blue swapped", "times", 0, (1,), swapped, colours=True),
        Kind("reflection", "all over", "of full light", 0, (0.02, 0.05, 0.1, 0.2, 0.4), veiled),
        *(
            Kind(
                "reflection",
                f"at {down:+.1f} down, {right:+.1f} right",
                "of full light",
                0,
                SPOTS,
                highlight(down, right),
            )
            for down in PLACES
            for right in PLACES
        ),
        Kind("blur", "", "pixels", 0, (0.4, 0.7, 1, 1.5, 3), blurred),
        Kind("noise", "", "levels of 255", 0, (2, 5, 10, 20, 40), noisy),
        Kind("compression", "", "JPEG quality", 100, (90, 75, 50, 25, 10), compressed),
        *(Kind("geometry", "turned", "degrees", 0, (way * 5, way * 15, way * 30), turned) for way in (1, -1)),
        *(Kind("geometry", "turned", "degrees", 0, (quarter,), turned) for quarter in (90, 180, 270)),
        *(Kind("geometry", f"moved {way}", "of the side", 0, (0.05, 0.1, 0.2), moved(*to)) for way, to in ways.items()),
        Kind("geometry", "nearer", "times", 1, (1.15, 1.4, 2), zoomed),
        Kind("geometry", "farther", "times", 1, (0.85, 0.7, 0.5), zoomed),
        Kind("geometry", "mirrored", "times", 0, (1,), mirrored(3)),
        Kind("geometry", "upside down", "times", 0, (1,), mirrored(2)),
    ]


SPOTS = (0.2, 0.8)
