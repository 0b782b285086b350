import pytest

from equipoise.config import TrainConfig


def test_equal_trials_are_the_same_experiment():
    assert TrainConfig(workload="digits", batch_size=64) == TrainConfig(workload="digits", batch_size=64)
    assert TrainConfig(workload="digits", seed=1) != TrainConfig(workload="digits")


def test_the_global_batch_counts_workers_and_micro_steps():
    trial = TrainConfig(workload="digits", workers=3, batch_size=16, grad_accumulation=2)
    assert (trial.num_micro_batches, trial.global_batch) == (6, 96)


@pytest.mark.parametrize(
    "name", ["workers", "batch_size", "grad_accumulation", "threads", "max_examples", "eval_every", "image_size"]
)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_start_at_one(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be a finite number of at least 1, got {value}$"):
        TrainConfig(workload="digits", **{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_a_learning_rate_is_a_finite_number(value):
    with pytest.raises(ValueError, match=r"^lr must be"):
        TrainConfig(workload="digits", lr=value)


@pytest.mark.parametrize("name", ["optimizer", "schedule", "precision"])
def test_choices_are_named(name):
    with pytest.raises(ValueError, match=f"^{name} must be one of .*, got 'bogus'$"):
        TrainConfig(workload="digits", **{name: "bogus"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_target_is_a_finite_number(value):
    with pytest.raises(ValueError, match=f"^target must be a finite number, got {value}$"):
        TrainConfig(workload="digits", target=value)


def test_a_seed_fits_64_bits():
    with pytest.raises(ValueError, match=r"^seed must be below 2\*\*63"):
        TrainConfig(workload="digits", seed=1 << 64)
