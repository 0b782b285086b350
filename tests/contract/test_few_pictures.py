"""A detector of shelves is fine-tuned to 40 hand-labelled pictures of other products."""

from dataclasses import replace

import pytest
import torch

from equipoise.boxes.mean_average_precision import compute_precision
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from equipoise.workloads.detection.box_metric import box_rows
from tests.support.hand_labelled_shelves import PIXELS, PRODUCTS, save_hand_labelled_shelves, with_clean_test
from tests.support.saved_runs import save_run_weights

SHELF = TrainConfig(workload="shelf", batch_size=16, max_examples=1600, eval_every=1600, target=1.0)
NUM_EXAMPLES = 640


def train_model(config, workload):
    training = Training(config, workload)
    for _ in training.laps():
        pass
    assert training.status == "max_examples", training.reason
    return training.model.eval()


def measure_at_50(workload, model):
    pictures = workload.input_transform(torch.device("cpu"), torch.float32)(workload.test.inputs)
    with torch.no_grad():
        rows = box_rows(model(pictures), workload.test.targets)
    return compute_precision(rows.numpy()).at_50


def test_hand_labelled_pictures_have_inexact_boxes_of_other_products(tmp_path):
    save_hand_labelled_shelves(tmp_path, seed=0)
    workload = load_workload(TrainConfig(workload="boxes", data=str(tmp_path), image_size=PIXELS, batch_size=8))
    assert sorted(workload.classes) == sorted(product.name for product in PRODUCTS)
    assert [len(split) for split in (workload.train, workload.test)] == [24, 6]
    boxes = workload.train.targets[workload.train.targets[..., 0] >= 0]
    assert (boxes[:, 1:5] != boxes[:, 1:5].round()).any(1).all()  # exact ones are whole pixels


@pytest.mark.slow
def test_forty_noisy_pictures_are_enough_from_a_detector_of_other_products(tmp_path):
    shelf = load_workload(SHELF)
    assert not {product.name for product in PRODUCTS} & set(shelf.classes)
    save_run_weights(tmp_path / "shelf", train_model(SHELF, shelf), shelf.classes)
    (tmp_path / "photos").mkdir()
    save_hand_labelled_shelves(tmp_path / "photos", seed=0)
    config = TrainConfig(
        workload="boxes",
        data=str(tmp_path / "photos"),
        image_size=PIXELS,
        batch_size=8,
        max_examples=NUM_EXAMPLES,
        eval_every=NUM_EXAMPLES,
        target=1.0,
    )
    workload = with_clean_test(load_workload(config))
    fine_tuned = train_model(replace(config, init_from=str(tmp_path / "shelf")), workload)
    assert measure_at_50(workload, fine_tuned) >= 0.7
