import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.planning.step_time_fit import (
    bootstrap_parameters,
    fit_step_time,
    is_still_identifiable,
    list_candidate_forms,
    select_form,
)
from equipoise.planning.step_time_model import (
    StepSettings,
    StepTimeForm,
    compute_and_exchange_seconds,
    overlapped_seconds,
    ring_all_reduce_seconds,
    step_seconds,
)

BATCH_LADDER = [8, 16, 32, 64, 128, 256]
TRUE_PARAMETERS = {
    "a": 0.01,
    "c": 0.0005,
    "local_alpha": 0.0002,
    "local_volume": 0.01,
    "between_alpha": 0.0005,
    "between_volume": 0.04,
    "g": 2.0,
}
ALPHA_AND_VOLUME = ("alpha", "volume")
FULL_FORM = StepTimeForm(local_terms=ALPHA_AND_VOLUME, between_terms=ALPHA_AND_VOLUME, has_overlap=True)


def build_settings(*points):
    return StepSettings(*np.array(points, float).T)


def build_step_rows(form, shapes, batches=BATCH_LADDER, noise=0.0, seed=0, parameters=TRUE_PARAMETERS):
    table = pd.DataFrame(
        [(*shape, batch) for shape in shapes for batch in batches], columns=["nodes", "workers", "batch"]
    )
    noise_factors = np.exp(noise * np.random.default_rng(seed).standard_normal(len(table)))
    return table.assign(seconds=step_seconds(form, parameters, StepSettings.from_table(table)) * noise_factors)


def test_ring_of_four_at_16_gb_per_second_sums_160_mb_in_15_ms():
    assert ring_all_reduce_seconds(np.array([4.0]), 0.0, 0.16 / 16) == pytest.approx(0.015)


def test_ring_all_reduce_pays_each_hop_latency_twice():
    assert ring_all_reduce_seconds(np.array([1.0, 2.0, 5.0]), 0.001, 0.0) == pytest.approx([0, 0.002, 0.008])


def test_g_sets_how_much_compute_and_exchange_overlap():
    three, four = np.array([3.0]), np.array([4.0])
    assert overlapped_seconds(three, four, 1.0) == pytest.approx(7)
    assert overlapped_seconds(three, four, 2.0) == pytest.approx(5)
    assert overlapped_seconds(three, four, 10.0) == pytest.approx(4, rel=0.01)
    assert overlapped_seconds(three, four, 0.5) > 7
    assert overlapped_seconds(three, np.array([0.0]), 3.0) == three


@given(st.floats(1, 10), st.sampled_from([False, True]))
def test_throughput_per_worker_never_rises_with_workers_nor_falls_with_batch(g, two_rings):
    form = FULL_FORM._replace(two_rings=two_rings)
    parameters = TRUE_PARAMETERS | {"g": g}
    seconds_per_example = (
        step_seconds(form, parameters, build_settings(*[(2, 8, batch) for batch in BATCH_LADDER])) / BATCH_LADDER
    )
    assert (np.diff(seconds_per_example) <= 0).all()
    for batch in BATCH_LADDER:
        seconds_by_size = step_seconds(
            form,
            parameters,
            build_settings(*[(1, 1, batch), (1, 2, batch), (1, 4, batch), (2, 8, batch), (4, 16, batch)]),
        )
        assert (np.diff(seconds_by_size) >= -1e-12).all()


@pytest.mark.parametrize("two_rings", [False, True])
def test_fit_recovers_parameters_and_predicts_64_workers(two_rings):
    form = FULL_FORM._replace(two_rings=two_rings)
    shapes = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (2, 8), (4, 8), (4, 16), (8, 32)]
    fit = fit_step_time(build_step_rows(form, shapes, noise=0.002))
    assert fit.identifiable
    large = build_settings(*[(16, 64, batch) for batch in BATCH_LADDER])
    assert fit.fitted_seconds(large) == pytest.approx(step_seconds(form, TRUE_PARAMETERS, large), rel=0.05)
    for name in ("between_alpha", "between_volume", "c"):
        assert fit.parameters[name] == pytest.approx(TRUE_PARAMETERS[name], rel=0.05), name


def test_fit_on_up_to_4_workers_predicts_16_workers():
    shapes = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 3), (4, 4)]
    fit = fit_step_time(build_step_rows(FULL_FORM, shapes, noise=0.02))
    large = build_settings(*[(16, 16, batch) for batch in BATCH_LADDER])
    assert fit.fitted_seconds(large) == pytest.approx(step_seconds(FULL_FORM, TRUE_PARAMETERS, large), rel=0.15)


def test_single_batch_size_does_not_identify_the_batch_term():
    fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 4)], batches=[32]))
    assert not fit.identifiable
    assert fit.missing_measurements(1, 2, 32) is None
    assert fit.missing_measurements(1, 2, 64) == "rows of a second batch per worker"


def test_single_node_does_not_identify_the_exchange_between_nodes():
    fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 4)]))
    assert fit.identifiable
    assert fit.missing_measurements(1, 8, 64) is None
    assert fit.missing_measurements(2, 8, 64) == "rows of several workers on several nodes"


def test_single_ring_size_does_not_separate_alpha_from_volume():
    fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1), (1, 2)]))
    assert not fit.identifiable
    assert fit.missing_measurements(1, 2, 100) is None
    assert fit.missing_measurements(1, 4, 100) == "rows of another number of workers within one node"


def test_single_worker_does_not_identify_the_exchange():
    fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1)]))
    assert fit.identifiable
    assert fit.missing_measurements(1, 2, 64) == "rows of several workers within one node"


def test_workers_sharing_cores_take_longer_than_compute_plus_exchange():
    parameters = TRUE_PARAMETERS | {"g": 0.7}
    fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 4)], parameters=parameters))
    point = build_settings((1, 4, 100))
    assert fit.fitted_seconds(point) == pytest.approx(step_seconds(FULL_FORM, parameters, point), rel=0.02)
    assert fit.fitted_seconds(point) > sum(compute_and_exchange_seconds(FULL_FORM, parameters, point))


@pytest.mark.slow
def test_intervals_cover_new_measurements():
    is_covered = []
    for seed in range(12):
        fit = fit_step_time(build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 4)], noise=0.05, seed=seed))
        point = build_step_rows(FULL_FORM, [(1, 4)], batches=[100], noise=0.05, seed=1000 + seed)
        low, high = np.quantile(fit.sample_seconds(StepSettings.from_table(point)), (0.1, 0.9), axis=0)
        is_covered.append(bool((low <= point.seconds).all() and (point.seconds <= high).all()))
    assert 7 <= sum(is_covered) <= 12  # 80 % intervals: 9.6 expected


def build_exchange_rows(shapes, byte_shares=(1 / 64, 1 / 8, 1), parameters=TRUE_PARAMETERS, noise=0.0):
    table = pd.DataFrame([(*shape, 0, share) for shape in shapes for share in byte_shares],
                         columns=["nodes", "workers", "batch", "share"])  # fmt: skip
    noise_factors = np.exp(noise * np.random.default_rng(1).standard_normal(len(table)))
    _, seconds = compute_and_exchange_seconds(
        FULL_FORM, parameters, StepSettings.from_table(table), table.share.to_numpy()
    )
    return table.drop(columns="batch").assign(kind="sum", seconds=seconds * noise_factors)


EXCHANGE_ROWS = build_exchange_rows([(2, 2)])


def build_message_row(shape, parameters=TRUE_PARAMETERS, byte_share=1e-6):
    seconds = parameters["between_alpha"] + byte_share * parameters["between_volume"]
    return pd.DataFrame(
        [(*shape, "message", byte_share, seconds)], columns=["nodes", "workers", "kind", "share", "seconds"]
    )


def test_exchanges_timed_alone_on_two_nodes_predict_four_nodes():
    shapes = [(1, 1), (2, 2)]
    steps = build_step_rows(FULL_FORM._replace(local_terms=()), shapes, noise=0.01)
    assert fit_step_time(steps).missing_measurements(4, 4, 32) == "rows of another number of workers on several nodes"
    fit = fit_step_time(steps, build_exchange_rows([(2, 2)], noise=0.01))
    assert fit.missing_measurements(4, 4, 32) is None and fit.identifiable
    assert fit.parameters["between_alpha"] == pytest.approx(TRUE_PARAMETERS["between_alpha"], rel=0.1)
    assert fit.parameters["between_volume"] == pytest.approx(TRUE_PARAMETERS["between_volume"], rel=0.05)
    four_nodes = build_settings(*[(4, 4, batch) for batch in BATCH_LADDER])
    assert fit.fitted_seconds(four_nodes) == pytest.approx(
        step_seconds(FULL_FORM, TRUE_PARAMETERS, four_nodes), rel=0.05
    )


@pytest.mark.parametrize("kind", ["sum", "message"])
def test_exchanges_between_nodes_do_not_change_a_fit_to_steps_on_one_node(kind):
    steps = build_step_rows(FULL_FORM._replace(between_terms=()), [(1, 1), (1, 2), (1, 4)], noise=0.01)
    fit = fit_step_time(steps, build_exchange_rows([(2, 2)]).assign(kind=kind))
    assert fit.parameters == fit_step_time(steps).parameters
    assert fit.missing_measurements(2, 2, 32) == "rows of several workers on several nodes"


def test_exchanges_of_similar_sizes_do_not_separate_alpha_from_volume():
    steps = build_step_rows(FULL_FORM._replace(local_terms=()), [(1, 1), (2, 2)])
    assert fit_step_time(steps, build_exchange_rows([(2, 2)], byte_shares=(0.5, 1))).form.between_terms == ("volume",)


def test_timed_messages_identify_an_unusually_small_alpha():
    parameters = TRUE_PARAMETERS | {"between_alpha": 1e-5}  # a hundredth of the usual alpha at that volume
    steps = build_step_rows(FULL_FORM, [(1, 1), (2, 2), (4, 4)], parameters=parameters, noise=0.02)
    exchanges = [
        build_exchange_rows([(2, 2), (4, 4)], parameters=parameters, noise=0.02),
        build_message_row((2, 2), parameters),
    ]
    fit = fit_step_time(steps, pd.concat(exchanges))
    assert fit.parameters["between_alpha"] == pytest.approx(1e-5, rel=0.1)
    assert fit.parameters["between_volume"] == pytest.approx(TRUE_PARAMETERS["between_volume"], rel=0.03)


def test_form_has_no_exchange_unless_it_is_given():
    form = StepTimeForm()
    assert not form.two_rings and form.parameter_names == ["a", "c"]


def test_overlap_is_a_candidate_where_two_timings_more_than_its_parameters_are_known():
    rows = build_step_rows(FULL_FORM, [(1, 1), (1, 2)], batches=[8, 16, 32])
    assert [form.has_overlap for form in list_candidate_forms(rows.iloc[:4])] == [False]
    assert [form.has_overlap for form in list_candidate_forms(rows.iloc[:5])] == [False, True]


def test_rings_inside_nodes_have_as_many_terms_as_sizes_of_them_were_timed():
    for shapes, terms in (
        ([(2, 2), (4, 4)], ()),
        ([(2, 4), (4, 8)], ("volume",)),
        ([(2, 4), (4, 16)], ALPHA_AND_VOLUME),
    ):
        forms = list_candidate_forms(build_step_rows(FULL_FORM, shapes))
        assert {form.local_terms for form in forms if form.two_rings} == {terms}


def test_timings_of_the_most_workers_judge_a_form_and_do_not_fit_it():
    rows = build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 3), (1, 4)], noise=0.02)
    few, many = build_exchange_rows([(1, 2), (1, 3)]), build_exchange_rows([(1, 4)])
    slow = many.assign(seconds=100 * many.seconds)
    form, error = select_form(rows, pd.concat([few, many]))
    assert select_form(rows, pd.concat([few, slow])) == (form, pytest.approx(error))
    assert select_form(rows, pd.concat([slow.assign(workers=3), many]))[1] != pytest.approx(error)


def test_overlap_exponent_is_at_most_ten():
    shapes = [(1, 1), (1, 2), (1, 3), (1, 4)]
    rows = build_step_rows(FULL_FORM, shapes, parameters=TRUE_PARAMETERS | {"g": 60.0, "local_volume": 0.08})
    assert fit_step_time(rows).parameters["g"] == pytest.approx(10, rel=1e-3)


def test_bootstrap_draws_whole_groups_of_rows_where_there_are_many():
    form, shapes, no_exchanges = (
        StepTimeForm(local_terms=("volume",)),
        [(1, n) for n in range(1, 13)],
        EXCHANGE_ROWS[:0],
    )
    rows = build_step_rows(form, shapes)
    fit = fit_step_time(rows)
    regular = [draw["local_volume"] for draw in bootstrap_parameters(fit.form, fit.parameters, rows, no_exchanges)]
    assert np.ptp(regular) < 1e-3 * regular[0]
    rows.loc[rows.workers == 12, "seconds"] *= 1.5  # one group with a peculiarity of its own
    draws = bootstrap_parameters(fit.form, fit.parameters, rows, no_exchanges)
    is_regular = [abs(draw["local_volume"] / regular[0] - 1) < 1e-3 for draw in draws]
    assert np.mean(is_regular) == pytest.approx((1 - 1 / len(shapes)) ** len(shapes), abs=0.15)  # it was not drawn


def test_exchanges_between_nodes_identify_their_terms_in_a_draw_with_one_shape():
    form = StepTimeForm(between_terms=ALPHA_AND_VOLUME)
    rows = build_step_rows(form, [(2, 2)])
    exchanges = build_exchange_rows([(2, 2)])
    assert is_still_identifiable(form, rows, exchanges)
    assert not is_still_identifiable(form, rows, exchanges[:0])
    assert not is_still_identifiable(form, rows, exchanges.assign(nodes=1))
