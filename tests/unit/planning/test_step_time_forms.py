"""The form of a fit that so many rows allow, and what a fit says of itself."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time, list_candidate_forms, select_form
from equipoise.planning.step_time_model import StepTimeForm
from tests.unit.planning.test_step_time_fit import ALPHA_AND_VOLUME, EXCHANGE_ROWS, FULL_FORM, build_step_rows


def test_held_out_rows_judge_forms_that_four_more_rows_than_parameters_fit():
    rows = build_step_rows(FULL_FORM, [(1, 1), (1, 2), (1, 3), (1, 4)], batches=[8, 16, 32], noise=0.02)
    others, held_out = rows[rows.workers < 4], rows[rows.workers == 4]
    form, error = select_form(pd.concat([others[:8], held_out]), EXCHANGE_ROWS[:0])
    assert len(form.parameter_names) == 4 and error > 0
    assert select_form(pd.concat([others[:7], held_out]), EXCHANGE_ROWS[:0])[1] is None


def test_text_of_a_fit_has_no_tables():
    rows = build_step_rows(FULL_FORM, [(1, 1)])
    fit = StepTimeFit(
        form=StepTimeForm(),
        parameters={"a": 0.01},
        relative_error=0.1,
        rows=rows,
        parameter_draws=[{"a": 0.02}],
        residuals=np.zeros(1),
    )
    text = repr(fit)
    assert "{'a': 0.01}" in text and not any(f" {name}=" in text for name in ("rows", "parameter_draws", "residuals"))
    assert (fit.pace_sd, fit.gradient_bytes) == (0.0, None)


def test_pace_and_bytes_of_a_fit_are_medians_and_one_worker_may_be_missing():
    rows = build_step_rows(FULL_FORM, [(1, 2), (1, 4)], batches=[8, 16])
    fit = fit_step_time(rows.assign(pace_sd=[0.1, 0.1, 0.2, 0.9], gradient_bytes=4e6))
    assert fit.pace_sd == pytest.approx(0.15) and fit.gradient_bytes == 4e6
    assert fit.missing_measurements(1, 1, 8) == "rows of one worker" and fit.missing_measurements(1, 2, 8) is None


def test_two_sizes_of_ring_identify_their_delay_beside_one_worker_and_three_do_alone():
    for workers, terms in (((2, 4), ("volume",)), ((1, 2, 4), ALPHA_AND_VOLUME), ((2, 3, 4), ALPHA_AND_VOLUME)):
        rows = build_step_rows(FULL_FORM, [(1, count) for count in workers])
        assert {form.local_terms for form in list_candidate_forms(rows)} == {terms}, workers


def test_richest_form_needs_five_more_rows_than_parameters_where_none_are_held_out():
    rows = build_step_rows(FULL_FORM, [(1, 1), (1, 2)], batches=[8, 16, 32, 64, 128])
    richest = list_candidate_forms(rows)[-1]
    assert richest.has_overlap and len(richest.parameter_names) == 4
    for count, has_overlap in ((8, False), (9, True)):
        form, error = select_form(rows[:count], EXCHANGE_ROWS[:0])
        assert (form.has_overlap, error) == (has_overlap, None)
