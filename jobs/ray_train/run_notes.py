"""What is said of a run before its workers start: initial weights, what workers hold and send, and warnings."""

import sys

from equipoise.config import TrainConfig
from equipoise.formatting import make_printable
from equipoise.training.finetune import freeze_stages
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.workloads import Workload


def print_run_notes(config: TrainConfig, workload: Workload) -> None:
    """Print what is worth to be known of a run; refuse a model that does not fit its options."""
    notes = describe_initialization(config, workload), describe_exchange(config, workload)
    for note in (*notes, describe_interval(config, workload.max_examples(config))):
        if note:
            print(make_printable(note), flush=True)
    if warning := warn_of_statistics(config, workload):
        print(make_printable(f"warning: {warning}"), file=sys.stderr, flush=True)


def describe_initialization(config: TrainConfig, workload: Workload) -> str:
    """Return a line on the pretrained weights of the model, or "" without any; refuse weights that do not fit."""
    initial, classes = build_initial_model(config, workload), workload.classes
    freeze_stages(initial.model, config.freeze_stages)
    if (pretrained := initial.pretrained) is None:
        return ""
    reused = initial.reused_classes
    if not classes:
        return f"starting from {pretrained.origin}"
    rows = f"{len(reused)} of {len(classes)} classes" + (f": {', '.join(reused)}" if reused else "")
    return f"starting from {pretrained.origin}, reusing the classifier rows of {rows}"


def describe_exchange(config: TrainConfig, workload: Workload) -> str:
    """Return a line on what servers or workers hold or --compression sends exactly; refuse a model that does not fit.

    Return an empty string where there is nothing to say.
    """
    has_store, is_sharded = config.sync_method.has_store, config.sharding_method.kind != "none" or config.recompute
    if config.compression_method.kind == "none" and not has_store and not is_sharded:
        return ""
    model = build_initial_model(config, workload).model
    freeze_stages(model, config.freeze_stages)
    if is_sharded:
        from equipoise.training.sharding.sharding_notes import describe_sharding  # only where it is asked for

        if note := describe_sharding(config, model, workload):
            return note
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if has_store:
        from equipoise.parameter_store.partition import describe_servers  # only where it is asked for

        sizes = {name: parameter.nbytes for name, parameter in trainable.items()}
        return describe_servers(sizes, config.servers, config.workers)
    from equipoise.training.gradient_sums.compression_checks import check_compression

    return check_compression(config.compression_method, trainable)


def describe_interval(config: TrainConfig, max_examples: int) -> str:
    """Return a line on workers that average their weights only once, at the end of the run; else an empty string."""
    interval = config.sync_method.interval * config.global_batch
    if not config.sync_method.is_local or interval < max_examples:
        return ""
    return (
        f"--sync {config.sync} would average the workers' weights every {interval:,} examples: they are averaged once,"
        f" at the end of the run after {max_examples:,}"
    )


def warn_of_statistics(config: TrainConfig, workload: Workload) -> str:
    """Return a sentence on batch normalisation whose running statistics differ, or "" without any."""
    is_async, splits_layers = config.sync_method.kind == "async", config.sharding_method.splits_layers
    if not is_async and not splits_layers:
        return ""
    model = build_initial_model(config, workload).model
    frozen = freeze_stages(model, config.freeze_stages)
    if splits_layers:
        from equipoise.training.sharding.sharding_notes import describe_shared_statistics

        return describe_shared_statistics(config, model, frozen)
    from equipoise.training.store_steps.batch_norm import describe_stale_statistics  # only where it is asked for

    return describe_stale_statistics(config, model, frozen)
