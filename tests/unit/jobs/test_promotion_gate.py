import pytest

from jobs.publishing.promotion_gate import label_shift_rejection_reason, rejection_reason


@pytest.mark.parametrize(
    ("clean", "drifted", "expected_reason"),
    [
        ([(0.97, 0.966)], [(0.5, 0.95)], None),
        ([(0.97, 0.964)], [(0.5, 0.95)], "0.60% accuracy lost on clean images"),
        ([(0.97, 0.97), (0.96, 0.95)], [(0.5, 0.95)], "1.00% accuracy lost on clean images"),
        ([(0.97, 0.97)], [(0.5, 0.7)], "20.00% regained of 47.00%"),
        ([(0.97, 0.97)], [(0.5, 0.95), (0.6, 0.7)], "10.00% regained of 37.00%"),
        ([(0.97, 0.97)], [(0.969, 0.968)], None),
        ([(0.97, 0.97)], [(0.969, 0.960)], "-0.90% regained of 0.10%"),
    ],
)
def test_model_passes_if_better_on_drifted_and_no_worse_on_clean_images(clean, drifted, expected_reason):
    reason = rejection_reason(0.97, clean, drifted)
    assert reason is None if expected_reason is None else expected_reason in reason


@pytest.mark.parametrize(
    ("clean", "drifted", "passes"),
    [((0.91, 0.88), (0.89, 0.94), True), ((0.91, 0.88), (0.89, 0.91), False), ((0.97, 0.97), (0.97, 0.97), True)],
)
def test_label_shift_gain_must_be_at_least_the_loss_on_clean_images(clean, drifted, passes):
    assert (label_shift_rejection_reason(clean, [drifted]) is None) == passes
