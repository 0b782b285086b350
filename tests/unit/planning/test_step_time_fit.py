import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.planning.step_time_fit import INTERVAL_QUANTILES, fit_step_time
from equipoise.planning.step_time_model import (
    StepSettings,
    StepTimeForm,
    compute_and_exchange_seconds,
    overlapped_seconds,
    ring_all_reduce_seconds,
    step_seconds,
)

LADDER = [8, 16, 32, 64, 128, 256]
TRUTH = {
    "a": 0.01,
    "c": 0.0005,
    "local_alpha": 0.0002,
    "local_volume": 0.01,
    "between_alpha": 0.0005,
    "between_volume": 0.04,
    "g": 2.0,
}
BOTH = ("alpha", "volume")
FULL = StepTimeForm(local_terms=BOTH, between_terms=BOTH, has_overlap=True)


def at(*points):
    return StepSettings(*np.array(points, float).T)


def rows(form, places, batches=LADDER, noise=0.0, seed=0, truth=TRUTH):
    table = pd.DataFrame(
        [(*place, batch) for place in places for batch in batches], columns=["nodes", "workers", "batch"]
    )
    wobble = np.exp(noise * np.random.default_rng(seed).standard_normal(len(table)))
    return table.assign(seconds=step_seconds(form, truth, StepSettings.from_table(table)) * wobble)


def test_a_ring_of_four_at_16_gb_a_second_sums_160_mb_in_15_ms():
    assert ring_all_reduce_seconds(np.array([4.0]), 0.0, 0.16 / 16) == pytest.approx(0.015)


def test_a_message_around_the_ring_and_back_costs_each_hop_twice():
    assert ring_all_reduce_seconds(np.array([1.0, 2.0, 5.0]), 0.001, 0.0) == pytest.approx([0, 0.002, 0.008])


def test_parts_overlap_as_g_says():
    three, four = np.array([3.0]), np.array([4.0])
    assert overlapped_seconds(three, four, 1.0) == pytest.approx(7)
    assert overlapped_seconds(three, four, 2.0) == pytest.approx(5)
    assert overlapped_seconds(three, four, 10.0) == pytest.approx(4, rel=0.01)
    assert overlapped_seconds(three, four, 0.5) > 7
    assert overlapped_seconds(three, np.array([0.0]), 3.0) == three


@given(st.floats(1, 10), st.sampled_from([False, True]))
def test_throughput_a_worker_never_rises_with_workers_and_efficiency_never_falls_with_batch(g, two_rings):
    form = FULL._replace(two_rings=two_rings)
    truth = TRUTH | {"g": g}
    by_batch = step_seconds(form, truth, at(*[(2, 8, batch) for batch in LADDER])) / LADDER
    assert (np.diff(by_batch) <= 0).all()
    for batch in LADDER:
        grown = step_seconds(
            form, truth, at(*[(1, 1, batch), (1, 2, batch), (1, 4, batch), (2, 8, batch), (4, 16, batch)])
        )
        assert (np.diff(grown) >= -1e-12).all()


@pytest.mark.parametrize("two_rings", [False, True])
def test_known_clusters_of_4_to_64_workers_are_found_again(two_rings):
    form = FULL._replace(two_rings=two_rings)
    places = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (2, 8), (4, 8), (4, 16), (8, 32)]
    found = fit_step_time(rows(form, places, noise=0.002))
    assert found.identifiable
    large = at(*[(16, 64, batch) for batch in LADDER])
    assert found.fitted_seconds(large) == pytest.approx(step_seconds(form, TRUTH, large), rel=0.05)
    for name in ("between_alpha", "between_volume", "c"):
        assert found.parameters[name] == pytest.approx(TRUTH[name], rel=0.05), name


def test_few_workers_predict_many():
    places = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 3), (4, 4)]
    found = fit_step_time(rows(FULL, places, noise=0.02))
    large = at(*[(16, 16, batch) for batch in LADDER])
    assert found.fitted_seconds(large) == pytest.approx(step_seconds(FULL, TRUTH, large), rel=0.15)


def test_one_batch_does_not_split_computing():
    found = fit_step_time(rows(FULL, [(1, 1), (1, 2), (1, 4)], batches=[32]))
    assert not found.identifiable
    assert found.missing_measurements(1, 2, 32) is None
    assert found.missing_measurements(1, 2, 64) == "rows of a second batch per worker"


def test_one_node_tells_nothing_of_a_network():
    found = fit_step_time(rows(FULL, [(1, 1), (1, 2), (1, 4)]))
    assert found.identifiable
    assert found.missing_measurements(1, 8, 64) is None
    assert found.missing_measurements(2, 8, 64) == "rows of several workers on several nodes"


def test_one_size_of_the_ring_does_not_tell_messages_from_bytes():
    found = fit_step_time(rows(FULL, [(1, 1), (1, 2)]))
    assert not found.identifiable
    assert found.missing_measurements(1, 2, 100) is None
    assert found.missing_measurements(1, 4, 100) == "rows of another number of workers within one node"


def test_one_worker_alone_tells_nothing_of_an_exchange():
    found = fit_step_time(rows(FULL, [(1, 1)]))
    assert found.identifiable
    assert found.missing_measurements(1, 2, 64) == "rows of several workers within one node"


def test_workers_that_share_cores_take_longer_than_the_sum():
    truth = TRUTH | {"g": 0.7}
    found = fit_step_time(rows(FULL, [(1, 1), (1, 2), (1, 4)], truth=truth))
    point = at((1, 4, 100))
    assert found.fitted_seconds(point) == pytest.approx(step_seconds(FULL, truth, point), rel=0.02)
    assert found.fitted_seconds(point) > sum(compute_and_exchange_seconds(FULL, truth, point))


def test_intervals_cover_what_is_measured_next():
    inside = []
    for seed in range(12):
        found = fit_step_time(rows(FULL, [(1, 1), (1, 2), (1, 4)], noise=0.05, seed=seed))
        point = rows(FULL, [(1, 4)], batches=[100], noise=0.05, seed=1000 + seed)
        low, high = np.quantile(found.sample_seconds(StepSettings.from_table(point)), INTERVAL_QUANTILES, axis=0)
        inside.append(bool((low <= point.seconds).all() and (point.seconds <= high).all()))
    assert 7 <= sum(inside) <= 12  # 9.6 expected


def exchanges(places, shares=(1 / 64, 1 / 8, 1), truth=TRUTH, noise=0.0):
    table = pd.DataFrame([(*place, 0, share) for place in places for share in shares],
                         columns=["nodes", "workers", "batch", "share"])  # fmt: skip
    wobble = np.exp(noise * np.random.default_rng(1).standard_normal(len(table)))
    _, took = compute_and_exchange_seconds(FULL, truth, StepSettings.from_table(table), table.share.to_numpy())
    return table.drop(columns="batch").assign(kind="sum", seconds=took * wobble)


def message(place, truth=TRUTH, share=1e-6):
    took = truth["between_alpha"] + share * truth["between_volume"]
    return pd.DataFrame([(*place, "message", share, took)], columns=["nodes", "workers", "kind", "share", "seconds"])


def test_exchanges_by_themselves_on_two_nodes_tell_what_four_take():
    places = [(1, 1), (2, 2)]
    steps = rows(FULL._replace(local_terms=()), places, noise=0.01)
    assert fit_step_time(steps).missing_measurements(4, 4, 32) == "rows of another number of workers on several nodes"
    found = fit_step_time(steps, exchanges([(2, 2)], noise=0.01))
    assert found.missing_measurements(4, 4, 32) is None and found.identifiable
    assert found.parameters["between_alpha"] == pytest.approx(TRUTH["between_alpha"], rel=0.1)
    assert found.parameters["between_volume"] == pytest.approx(TRUTH["between_volume"], rel=0.05)
    four = at(*[(4, 4, batch) for batch in LADDER])
    assert found.fitted_seconds(four) == pytest.approx(step_seconds(FULL, TRUTH, four), rel=0.05)


def test_exchanges_of_nearly_the_same_bytes_tell_nothing_more():
    steps = rows(FULL._replace(local_terms=()), [(1, 1), (2, 2)])
    assert fit_step_time(steps, exchanges([(2, 2)], shares=(0.5, 1))).form.between_terms == ("volume",)


def test_an_alpha_far_from_usual_is_believed_where_it_was_timed():
    truth = TRUTH | {"between_alpha": 1e-5}  # a hundredth of what it usually is beside that volume
    steps = rows(FULL, [(1, 1), (2, 2), (4, 4)], truth=truth, noise=0.02)
    beside = [exchanges([(2, 2), (4, 4)], truth=truth, noise=0.02), message((2, 2), truth)]
    found = fit_step_time(steps, pd.concat(beside))
    assert found.parameters["between_alpha"] == pytest.approx(1e-5, rel=0.1)
    assert found.parameters["between_volume"] == pytest.approx(TRUTH["between_volume"], rel=0.03)
