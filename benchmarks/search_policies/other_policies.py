"""Other search policies, on the same recorded trials and at the same cost.

They run whole trainings on the real number of workers, and know how long each took.
"""

from collections.abc import Callable

import numpy as np
import optuna

from benchmarks.search_policies.ground_truth import Choice, GroundTruth
from benchmarks.search_policies.user_habits import choose_by_one_seed, choose_largest_throughput, choose_usual_setting

SearchPolicy = Callable[[GroundTruth, list[int], float, int], Choice]
"""takes the ground truth, the seeds it may see, the worker-seconds to spend and the seed of its own random numbers"""

RUNG_COUNT, REDUCTION_FACTOR = 5, 3  # of successive halving


def search_randomly(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Run whole trials of random settings and return the fastest one seen."""
    return run_optuna_study(
        truth, seen, budget, draw, optuna.samplers.RandomSampler(seed=draw), optuna.pruners.NopPruner()
    )


def search_with_tpe(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Search with Optuna's default sampler, TPE, without pruning."""
    return run_optuna_study(
        truth, seen, budget, draw, optuna.samplers.TPESampler(seed=draw), optuna.pruners.NopPruner()
    )


def search_with_asha(truth: GroundTruth, seen: list[int], budget: float, draw: int) -> Choice:
    """Search by asynchronous successive halving: random settings, those with the poorer metrics stopped early."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION_FACTOR)
    return run_optuna_study(truth, seen, budget, draw, optuna.samplers.RandomSampler(seed=draw), pruner)


OTHER_POLICIES: dict[str, SearchPolicy] = {
    "largest throughput": choose_largest_throughput,
    "32 a worker, linear rule": choose_usual_setting,
    "grid of one seed": choose_by_one_seed,
    "random": search_randomly,
    "Optuna TPE": search_with_tpe,
    "ASHA": search_with_asha,
}


def run_optuna_study(
    truth: GroundTruth,
    seen: list[int],
    budget: float,
    draw: int,
    sampler: optuna.samplers.BaseSampler,
    pruner: optuna.pruners.BasePruner,
) -> Choice:
    """Run an Optuna study until the budget is spent and return the setting of its fastest trial."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    shapes = sorted(truth.seconds_by_shape.index)
    longest = max(metric_seconds(truth, choice)[-1] for choice in truth.all_choices)
    spent, rng = 0.0, np.random.default_rng(draw)
    while spent < budget:
        trial = study.ask()
        workers, batch = shapes[trial.suggest_int("place", 0, len(shapes) - 1)]
        global_batch = workers * batch
        choice = Choice(workers, global_batch, truth.lrs_by_batch[global_batch][trial.suggest_int("rate", 0, 4)])
        seconds, reached, pruned = run_trial(truth, choice, int(rng.choice(seen)), trial, longest)
        spent += seconds * workers
        trial.set_user_attr("choice", choice)
        state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        study.tell(trial, None if pruned else float(np.log(seconds if reached else 3 * seconds)), state=state)
    completed = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    return Choice(*min(completed, key=lambda trial: trial.value).user_attrs["choice"])


def run_trial(
    truth: GroundTruth, choice: Choice, seed: int, trial: optuna.Trial, longest: float
) -> tuple[float, bool, bool]:
    """Return the seconds of a trial, whether it reached the target, and whether it was pruned."""
    examples, reached = truth.read_trial(choice.global_batch, choice.lr, seed)
    step_seconds = truth.step_seconds(choice.workers, choice.global_batch)
    total = examples / choice.global_batch * step_seconds
    metrics = truth.metrics.loc[choice.global_batch, choice.lr, seed]
    times = metric_seconds(truth, choice)
    for rung in range(1, RUNG_COUNT):  # each rung lasts REDUCTION_FACTOR times as long as the one before
        until = longest / REDUCTION_FACTOR ** (RUNG_COUNT - rung)
        if until >= total:
            break
        trial.report(-float(np.interp(until, times, metrics)), REDUCTION_FACTOR ** (rung - 1))
        if trial.should_prune():
            return until, False, True
    return total, reached, False


def metric_seconds(truth: GroundTruth, choice: Choice) -> np.ndarray:
    """Return the seconds after which each recorded metric of a setting's trials is known."""
    examples = truth.metrics.columns.to_numpy(float)
    return examples / choice.global_batch * truth.step_seconds(choice.workers, choice.global_batch)
