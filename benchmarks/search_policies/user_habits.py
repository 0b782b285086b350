"""What people do instead of a search, judged on the same recorded trials."""

from benchmarks.search_policies.ground_truth import Choice, GroundTruth

DEFAULT_BATCH, DEFAULT_LR = 32, 0.05


def choose_largest_throughput(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Choose the shape with the most examples per second, and its best learning rate free of charge."""
    workers, batch = max(
        truth.seconds_by_shape.index, key=lambda shape: shape[0] * shape[1] / truth.seconds_by_shape[shape]
    )
    global_batch = workers * batch
    return min(
        (Choice(workers, global_batch, lr) for lr in truth.lrs_by_batch[global_batch]),
        key=lambda choice: truth.expected_seconds(choice, seen),
    )


def choose_usual_setting(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Choose 32 examples per worker on all workers, with the learning rate by the linear scaling rule."""
    workers = max(truth.seconds_by_shape.index.unique("workers"))
    global_batch = DEFAULT_BATCH * workers
    return Choice(workers, global_batch, truth.apply_linear_rule(global_batch, DEFAULT_LR, DEFAULT_BATCH))


def choose_by_one_seed(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Choose the best of the whole grid run with a single seed, whatever that costs."""
    return truth.find_best(seen[:1])
