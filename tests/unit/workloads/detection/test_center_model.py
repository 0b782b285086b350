"""The detector by centres: what its maps say, its loss, and that n workers take the steps of one."""

import numpy as np
import pytest
import torch

from equipoise.boxes.mean_average_precision import compute_precision
from equipoise.config import TrainConfig
from equipoise.training.batch_split import depends_on_batch_split
from equipoise.training.loop import Training
from equipoise.workloads.detection.box_metric import box_rows, coco_precision
from equipoise.workloads.detection.center_loss import center_loss, draw_peaks
from equipoise.workloads.detection.center_model import STRIDE, CenterModel, pick_peaks
from tests.support.boxed_shelves import small_shelf
from tests.support.gloo import run_with_gloo

ROWS, COLUMNS, CLASSES = 6, 8, 3
TARGETS = torch.tensor(
    [
        [[1.0, 3, 5, 20, 30, 0], [2, 30, 10, 25, 12, 0], [0, 0, 0, 64, 48, 1]],
        [[0, 40, 20, 9, 9, 0], [-1, 0, 0, 1, 1, 0], [-1, 0, 0, 1, 1, 0]],
        [[-1, 0, 0, 1, 1, 0]] * 3,
    ]
)


def perfect_maps():
    """Return maps that say exactly what the targets are."""
    heatmap = torch.full((len(TARGETS), CLASSES, ROWS, COLUMNS), -12.0)
    sides = torch.ones(len(TARGETS), 4, ROWS, COLUMNS)
    for picture, boxes in enumerate(TARGETS.tolist()):
        for label, x, y, width, height, crowd in boxes:
            if label < 0 or crowd:
                continue
            column, row = int((x + width / 2) // STRIDE), int((y + height / 2) // STRIDE)
            heatmap[picture, int(label), row, column] = 12.0
            for i in range(ROWS):
                for j in range(COLUMNS):
                    if abs(i - row) <= 1 and abs(j - column) <= 1:
                        middle_x, middle_y = (j + 0.5) * STRIDE, (i + 0.5) * STRIDE
                        sides[picture, :, i, j] = torch.tensor(
                            [middle_x - x, middle_y - y, x + width - middle_x, y + height - middle_y]
                        )
    return {"heatmap": heatmap, "sides": sides}


def test_answers_are_the_boxes_that_maps_describe():
    maps = perfect_maps()
    outputs = maps | {"detections": pick_peaks(**maps, count=10)}
    assert outputs["detections"].shape == (3, 10, 6)
    first = outputs["detections"][0, :2]
    expected = TARGETS[0, :2]
    first = first[first[:, 5].argsort()]
    assert torch.allclose(first[:, :4], expected[:, 1:5], atol=1e-4) and first[:, 5].tolist() == [1, 2]
    assert (outputs["detections"][2, :, 4] < 1e-4).all()
    assert coco_precision(box_rows(outputs, TARGETS)) == pytest.approx(1)


def test_neighbours_of_a_peak_are_no_answers():
    maps = perfect_maps()
    maps["heatmap"][0, 1, 2, 2] = 5.0  # beside the centre at row 2, column 1
    scores = pick_peaks(**maps, count=20)[0]
    assert (scores[:, 4] > 0.5).sum() == 2


def test_loss_is_near_zero_for_perfect_maps_and_larger_for_any_change():
    perfect = perfect_maps()
    best = center_loss(perfect, TARGETS)
    assert 0 <= best < 0.01
    for name, change in (("heatmap", 3.0), ("sides", 2.0)):
        worse = {key: value.clone() for key, value in perfect.items()}
        worse[name][0, :, 2, 1] += change if name == "sides" else -20.0
        assert center_loss(worse, TARGETS) > best + 0.01


def test_answers_inside_of_a_crowd_cost_nothing():
    maps = perfect_maps()
    maps["heatmap"][0, 0, 5, 7] = 12.0
    assert center_loss(maps, TARGETS) < 0.01
    maps["heatmap"][1, 0, 5, 7] = 12.0
    assert center_loss(maps, TARGETS) > 1


def test_peaks_are_one_at_the_centre_and_wider_for_larger_boxes():
    peaks = draw_peaks(TARGETS, torch.Size((ROWS, COLUMNS)))
    assert peaks[0, 0, 2, 1] == 1 and peaks[1, 0, 3, 5] == 1
    assert peaks.max() == 1
    assert peaks[0, 0].sum() > peaks[1, 0].sum()


def test_peak_of_a_box_that_ends_outside_is_at_the_border():
    width, height = COLUMNS * STRIDE, ROWS * STRIDE
    box = torch.tensor([[[0.0, width - 1, height - 1, 4, 4, 0]]])  # its centre lies beyond the last place
    (peak,) = draw_peaks(box, torch.Size((ROWS, COLUMNS)))[0]
    assert peak[-1, -1] == peak.max() == 1


def test_loss_of_a_batch_is_the_mean_of_its_parts():
    assert not depends_on_batch_split(small_shelf())


def test_gradient_is_that_of_differences():
    maps = {name: value[:1].double().requires_grad_() for name, value in perfect_maps().items()}
    with torch.no_grad():
        maps["heatmap"].mul_(0.1)
        maps["sides"].mul_(1.1)
    assert torch.autograd.gradcheck(
        lambda heatmap, sides: center_loss({"heatmap": heatmap, "sides": sides}, TARGETS[:1].double()),
        (maps["heatmap"], maps["sides"]),
    )


def test_a_picture_is_answered_alone_as_in_a_batch():
    torch.manual_seed(0)
    model = CenterModel(CLASSES).double().eval()
    pictures = torch.randn(4, 3, 48, 64, dtype=torch.float64)
    with torch.no_grad():
        whole = model(pictures)["detections"]
        single = torch.cat([model(picture[None])["detections"] for picture in pictures])
    assert whole.shape == (4, 100, 6)
    assert torch.allclose(whole, single, atol=1e-10)
    assert "detections" not in model.train()(pictures)


def train(options):
    workload = small_shelf(target=None)
    config = TrainConfig(
        workload="tests.support.boxed_shelves:small_shelf",
        precision="fp64",
        max_examples=96,
        eval_every=48,
        target=None,
        **options,
    )
    training = Training(config, workload)
    metrics = [lap.metric for lap in training.laps() if lap.metric is not None]
    assert training.status == "max_examples", training.reason
    return training.state_dict(), [*metrics, training.evaluate(workload.test)]


def test_two_and_three_workers_take_the_steps_of_one(tmp_path):
    weights, metrics = train({"batch_size": 8, "grad_accumulation": 3})
    for workers, options in ((3, {"batch_size": 8}), (2, {"batch_size": 4, "grad_accumulation": 3})):
        for other, other_metrics in run_with_gloo(workers, tmp_path, train, options | {"workers": workers}):
            assert max(float((weights[key] - other[key]).abs().max()) for key in weights) <= 1e-12
            assert other_metrics == pytest.approx(metrics, abs=1e-12)


def evaluate_small_batches(workers):
    workload = small_shelf()
    config = TrainConfig(workload="x:y", precision="fp64", workers=workers, batch_size=8)
    training = Training(config, workload)
    training.evaluate(workload.test)
    training.evaluator.batch_size = 3
    return training.evaluate(workload.validation)


def test_precision_is_the_same_on_any_number_of_workers(tmp_path):
    workload = small_shelf()
    training = Training(TrainConfig(workload="x:y", precision="fp64", batch_size=8), workload)
    split = workload.validation
    with torch.no_grad():
        pictures = workload.input_transform(torch.device("cpu"), torch.float64)(split.inputs)
        rows = box_rows(training.model.eval()(pictures), split.targets)
    expected = compute_precision(rows.numpy()).overall
    assert np.isfinite(expected)
    for workers in (2, 3):
        assert run_with_gloo(workers, tmp_path, evaluate_small_batches, workers) == [expected] * workers
