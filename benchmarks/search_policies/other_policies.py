"""Other searches, on the same recorded trials and for the same cost.

They run whole trainings on their real workers, and know the time each took.
"""

from collections.abc import Callable

import numpy as np
import optuna

from benchmarks.search_policies.ground_truth import Choice, Truth
from benchmarks.search_policies.user_habits import largest_throughput, one_seed, usual

Search = Callable[[Truth, list[int], float, int], Choice]
"""of the truth, the seeds that may be seen, worker-seconds to spend, and a seed of its own"""

RUNGS, REDUCTION = 5, 3  # of successive halving


def random(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """Whole trials of settings drawn at random; the fastest one seen."""
    return studied(truth, seen, budget, draw, optuna.samplers.RandomSampler(seed=draw), optuna.pruners.NopPruner())


def tpe(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """Optuna's default search."""
    return studied(truth, seen, budget, draw, optuna.samplers.TPESampler(seed=draw), optuna.pruners.NopPruner())


def asha(truth: Truth, seen: list[int], budget: float, draw: int) -> Choice:
    """Asynchronous successive halving: settings drawn at random, the poorer ones by metric ended early."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    return studied(truth, seen, budget, draw, optuna.samplers.RandomSampler(seed=draw), pruner)


OTHERS: dict[str, Search] = {
    "largest throughput": largest_throughput,
    "32 a worker, linear rule": usual,
    "grid of one seed": one_seed,
    "random": random,
    "Optuna TPE": tpe,
    "ASHA": asha,
}


def studied(
    truth: Truth,
    seen: list[int],
    budget: float,
    draw: int,
    sampler: optuna.samplers.BaseSampler,
    pruner: optuna.pruners.BasePruner,
) -> Choice:
    """The fastest trial that Optuna saw before the budget was spent."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    places = sorted(truth.steps.index)
    longest = max(times(truth, choice)[-1] for choice in truth.choices)
    spent, rng = 0.0, np.random.default_rng(draw)
    while spent < budget:
        trial = study.ask()
        workers, batch = places[trial.suggest_int("place", 0, len(places) - 1)]
        whole = workers * batch
        choice = Choice(workers, whole, truth.rates[whole][trial.suggest_int("rate", 0, 4)])
        seconds, reached, pruned = run(truth, choice, int(rng.choice(seen)), trial, longest)
        spent += seconds * workers
        trial.set_user_attr("choice", choice)
        state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        study.tell(trial, None if pruned else float(np.log(seconds if reached else 3 * seconds)), state=state)
    ended = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    return Choice(*min(ended, key=lambda one: one.value).user_attrs["choice"])


def run(truth: Truth, choice: Choice, seed: int, trial: optuna.Trial, longest: float) -> tuple[float, bool, bool]:
    """Seconds that a trial took, whether it reached the target, and whether it was ended early."""
    examples, reached = truth.trial(choice.global_batch, choice.lr, seed)
    step = truth.step(choice.workers, choice.global_batch)
    total = examples / choice.global_batch * step
    metrics = truth.metrics.loc[choice.global_batch, choice.lr, seed]
    at = times(truth, choice)
    for rung in range(1, RUNGS):  # REDUCTION times as much time from one to the next
        until = longest / REDUCTION ** (RUNGS - rung)
        if until >= total:
            break
        trial.report(-float(np.interp(until, at, metrics)), REDUCTION ** (rung - 1))
        if trial.should_prune():
            return until, False, True
    return total, reached, False


def times(truth: Truth, choice: Choice) -> np.ndarray:
    """Seconds after which the metrics of a choice's trials are known."""
    examples = truth.metrics.columns.to_numpy(float)
    return examples / choice.global_batch * truth.step(choice.workers, choice.global_batch)
