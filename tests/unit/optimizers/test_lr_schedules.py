import pytest

from equipoise.optimizers.lr_schedules import lr_scale


def test_constant_schedule_warms_up_linearly_to_the_learning_rate():
    assert [lr_scale("constant", examples, 100, 1000) for examples in (1, 50, 99, 100, 999)] == [0.01, 0.5, 0.99, 1, 1]
    assert lr_scale("constant", 1, 0, 1000) == 1


def test_cosine_falls_from_end_of_warm_up_to_zero_at_max_examples():
    assert lr_scale("cosine", 100, 100, 1100) == 1
    assert lr_scale("cosine", 600, 100, 1100) == pytest.approx(0.5)
    assert lr_scale("cosine", 1100, 100, 1100) == pytest.approx(0)
    assert lr_scale("cosine", 1164, 100, 1100) == pytest.approx(0)  # the last step may pass max_examples


def test_one_cycle_rises_to_the_learning_rate_and_ends_at_zero():
    assert lr_scale("one-cycle", 0, 100, 1000) == pytest.approx(1 / 25)
    assert lr_scale("one-cycle", 300, 100, 1000) == pytest.approx(1)
    assert lr_scale("one-cycle", 650, 100, 1000) == pytest.approx(0.5)
    assert lr_scale("one-cycle", 1000, 100, 1000) == pytest.approx(0)


def test_warm_up_as_long_as_the_run_does_not_divide_by_zero():
    assert lr_scale("cosine", 100, 100, 100) == 0
