"""What people do instead of a search, on the same recorded trials."""

from benchmarks.search_policies.ground_truth import Choice, Truth

DEFAULT_BATCH, DEFAULT_LR = 32, 0.05


def largest_throughput(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """The most examples a second, with the best learning rate there for nothing."""
    workers, batch = max(truth.steps.index, key=lambda at: at[0] * at[1] / truth.steps[at])
    whole = workers * batch
    return min((Choice(workers, whole, lr) for lr in truth.rates[whole]), key=lambda one: truth.seconds(one, seen))


def usual(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """32 examples a worker on all workers, the learning rate by the linear rule."""
    workers = max(truth.steps.index.unique("workers"))
    whole = DEFAULT_BATCH * workers
    return Choice(workers, whole, truth.rule(whole, DEFAULT_LR, DEFAULT_BATCH))


def one_seed(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """The whole grid with a single seed, whatever that costs."""
    return truth.best(seen[:1])
