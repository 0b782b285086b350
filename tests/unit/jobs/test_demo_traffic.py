"""What the demo's simulated clients send, and which share of it looks like each known condition."""

import pytest
import torch

from equipoise.drift.diagnosis.verdict import ChartHistory
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.processes import find_free_ports, wait_until
from jobs.demo.chapters import EVENING_SCENE
from jobs.demo.demo_state import measure_condition_shares
from jobs.demo.service_clients import BACKGROUND_BATCH_IMAGES
from jobs.demo.traffic import SimulatedClients


def test_mixed_images_are_runs_of_each_light_in_turn():
    clients = SimulatedClients(port=1)
    images, names = clients.render_mixed_images(50, (Scene(), EVENING_SCENE), 20)
    white, _ = SimulatedClients(port=1).render_images(50)
    warm, warm_names = SimulatedClients(port=1).render_images(50, EVENING_SCENE)
    assert torch.equal(images, torch.cat([white[:20], warm[20:40], white[40:]]))
    assert names == warm_names  # the light does not change what an image shows
    assert clients.rendered_count == 50


def test_one_light_is_one_run():
    images, names = SimulatedClients(port=1).render_mixed_images(30, (EVENING_SCENE,), 30)
    expected, expected_names = SimulatedClients(port=1).render_images(30, EVENING_SCENE)
    assert torch.equal(images, expected) and names == expected_names


def test_no_image_is_sent_twice_in_the_background():
    clients = SimulatedClients(find_free_ports(1)[0])  # where no service answers
    with clients.send_in_background(EVENING_SCENE):
        wait_until(lambda: len(clients.failure_reasons) > 3 * BACKGROUND_BATCH_IMAGES)
    assert len(clients.label_by_pixels) == clients.rendered_count >= len(clients.failure_reasons)


def test_shares_of_conditions_are_of_the_images_since_a_phase_began():
    history = ChartHistory(
        image_numbers=[100, 116, 132, 164],
        conditions={"as published": [1.0, 0.5, 0.25, 0.0], "warmer": [0.0, 0.5, 0.75, 1.0]},
    )
    shares = measure_condition_shares(history, 100)  # 16, 16 and 32 images
    assert shares == pytest.approx({"as published": 12 / 64, "warmer": 52 / 64})
    assert measure_condition_shares(history, 0)["as published"] == pytest.approx(112 / 164)
    assert measure_condition_shares(history, 140) == pytest.approx({"as published": 0.0, "warmer": 1.0})


def test_step_with_images_from_before_a_phase_counts_only_without_a_later_one():
    history = ChartHistory(image_numbers=[100, 180, 200], conditions={"as published": [0.0, 0.2, 0.9]})
    assert measure_condition_shares(history, 110) == pytest.approx({"as published": 0.9})  # 100 to 180 is of both
    assert measure_condition_shares(history, 190) == pytest.approx({"as published": 0.9})  # the only one there is
    assert measure_condition_shares(history, 100) == pytest.approx({"as published": (80 * 0.2 + 20 * 0.9) / 100})


def test_one_known_condition_has_no_shares():
    assert measure_condition_shares(ChartHistory(image_numbers=[16, 32]), 16) == {}
    assert measure_condition_shares(ChartHistory(), 0) == {}
