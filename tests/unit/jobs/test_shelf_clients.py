"""Clients of the detector's demo: how they judge answers, of which they know the truth."""

import numpy as np
import pytest
import torch

from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.processes import find_free_ports
from jobs.demo.service_clients import split_runs
from jobs.demo.shelf_clients import PRODUCT_NAMES, ShelfClients, judge_boxes, pack_answers

WARM = Scene(kelvin=3000)
TRUTH = np.array(
    [[[0.0, 10, 10, 20, 30, 0], [4.0, 50, 12, 22, 30, 0]], [[2.0, 5, 50, 20, 40, 0], [-1.0, 0, 0, 1, 1, 0]]]
)


def answer(*rows):
    """Return an answer of the service with the boxes of rows (class, x, y, width, height, score)."""
    names = ("x", "y", "width", "height", "score")
    return {"boxes": [{"label": PRODUCT_NAMES[row[0]], **dict(zip(names, row[1:], strict=True))} for row in rows]}


RIGHT = answer((0, 10, 10, 20, 30, 0.9), (4, 50, 12, 22, 30, 0.8)), answer((2, 5, 50, 20, 40, 0.7))


def judge(*answers):
    return judge_boxes(pack_answers(answers), TRUTH)


def test_right_answers_have_every_product_and_nothing_else():
    judged = judge(*RIGHT)
    assert (judged.right, judged.average_precision) == (2, pytest.approx(1.0))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        answer(),
        answer((3, 5, 50, 20, 40, 0.7)),
        answer((2, 25, 50, 20, 40, 0.7)),
        answer((2, 5, 50, 20, 40, 0.7), (2, 60, 50, 20, 40, 0.6)),
        answer((2, 5, 50, 20, 40, 0.7), (2, 6, 50, 20, 40, 0.6)),
    ],
    ids=["unanswered", "none", "other product", "elsewhere", "one too many", "twice"],
)
def test_answer_is_wrong_if_a_product_is_missing_mistaken_or_invented(wrong):
    assert judge(RIGHT[0], wrong).right == 1


def test_box_that_is_half_right_is_right_and_less_precise():
    judged = judge(RIGHT[0], answer((2, 8, 50, 20, 40, 0.7)))
    assert judged.right == 2 and 0.5 < judged.average_precision < 1.0


def test_clients_know_the_boxes_of_every_picture_and_send_none_twice():
    clients = ShelfClients(find_free_ports(1)[0])  # where no service answers
    images, targets = clients.render_images(4, WARM)
    more, _ = clients.render_images(3)
    assert clients.rendered_count == 7 == len({image.numpy().tobytes() for image in torch.cat([images, more])})
    boxes = clients.boxes_by_pixels[images[2].numpy().tobytes()]
    np.testing.assert_array_equal(boxes, targets[2][targets[2][:, 0] >= 0].double().numpy())
    judged = clients.send_and_judge(3, (Scene(), WARM), 2)
    assert (judged.right, judged.average_precision, len(clients.failure_reasons)) == (0, 0.0, 3)


def test_lights_take_turns():
    assert split_runs(50, ("day", "night"), 20) == [(20, "day"), (20, "night"), (10, "day")]
    assert split_runs(50, ("day",), 50) == [(50, "day")]
