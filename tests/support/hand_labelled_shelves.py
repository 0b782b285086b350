"""Few pictures of products that the workload shelf does not have, with boxes as hands draw them: some are missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.formats.yolo import write_yolo
from equipoise.workloads import BoxWorkload, Split
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.vending.products import SOURCE_ONLY_PRODUCTS

PRODUCTS = tuple(SOURCE_ONLY_PRODUCTS[:10])  # none is in the workload shelf
PIXELS, NUM_PICTURES = 96, 40
EDGE_PIXELS = 2.0  # standard deviation of each edge of a box
MISSING_SHARE = 0.05
MIN_SIDE_PIXELS = 4.0
FIRST_SEED, CLEAN_SEED, NUM_CLEAN = 100, 900, 200


def save_hand_labelled_shelves(folder: Path, seed: int) -> None:
    """Save pictures, and their boxes in YOLO's text files."""
    rng = np.random.default_rng(seed)
    pictures, targets = render_shelves(PRODUCTS, np.arange(NUM_PICTURES), FIRST_SEED + seed, PIXELS)
    labelled = []
    for index, (pixels, boxes) in enumerate(zip(pictures.numpy(), targets.numpy(), strict=True)):
        name = f"{index:03}.png"
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / name)
        drawn = [draw_box_by_hand(box, rng) for box in boxes if box[0] >= 0 and rng.random() >= MISSING_SHARE]
        labelled.append(BoxedPicture(name, PIXELS, PIXELS, tuple(drawn)))
    write_yolo(BoxedDataset(tuple(product.name for product in PRODUCTS), tuple(labelled)), folder)


def draw_box_by_hand(box: np.ndarray, rng: np.random.Generator) -> LabelledBox:
    """Return a box each of whose edges is some pixels off, inside of its picture."""
    label, x, y, width, height = box[:5].astype(np.float64)
    edges = np.clip(np.array([x, y, x + width, y + height]) + rng.normal(0, EDGE_PIXELS, 4), 0, PIXELS)
    start = np.minimum(edges[:2], PIXELS - MIN_SIDE_PIXELS)
    side = np.maximum(edges[2:] - start, MIN_SIDE_PIXELS)
    return LabelledBox(PRODUCTS[int(label)].name, *start.tolist(), *side.tolist())


def with_clean_test(workload: BoxWorkload) -> BoxWorkload:
    """Return the workload with other pictures of these products, and their exact boxes, as its test split."""
    pictures, targets = render_shelves(PRODUCTS, np.arange(NUM_CLEAN), CLEAN_SEED, PIXELS)
    places = [workload.classes.index(product.name) for product in PRODUCTS]
    labels = targets[..., 0].long()
    targets[..., 0] = torch.where(labels >= 0, torch.tensor(places)[labels.clamp(min=0)], -1).float()
    return replace(workload, test=Split(pictures, targets))
