import pytest

from equipoise.config import Trial


def test_equal_trials_are_the_same_experiment():
    assert Trial(workload="digits", batch=64) == Trial(workload="digits", batch=64)
    assert Trial(workload="digits", seed=1) != Trial(workload="digits")


def test_the_global_batch_counts_workers_and_micro_steps():
    trial = Trial(workload="digits", workers=3, batch=16, accumulate=2)
    assert (trial.places, trial.global_batch) == (6, 96)


@pytest.mark.parametrize("name", ["workers", "batch", "accumulate", "threads", "examples", "evaluate", "size"])
@pytest.mark.parametrize("value", [0, -3])
def test_counts_start_at_one(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be a finite number of at least 1, got {value}$"):
        Trial(workload="digits", **{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_a_learning_rate_is_a_finite_number(value):
    with pytest.raises(ValueError, match=r"^lr must be"):
        Trial(workload="digits", lr=value)


@pytest.mark.parametrize("name", ["optimizer", "schedule", "precision"])
def test_choices_are_named(name):
    with pytest.raises(ValueError, match=f"^{name} must be one of .*, got 'bogus'$"):
        Trial(workload="digits", **{name: "bogus"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_target_is_a_finite_number(value):
    with pytest.raises(ValueError, match=f"^target must be a finite number, got {value}$"):
        Trial(workload="digits", target=value)


def test_a_seed_fits_64_bits():
    with pytest.raises(ValueError, match=r"^seed must be below 2\*\*63"):
        Trial(workload="digits", seed=1 << 64)
