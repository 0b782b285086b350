"""A model's card: what it is, how well it does, what it was made by, and where it ends. For people."""

from typing import Any

from equipoise.formatting import format_number


def render_model_card(manifest: dict[str, Any]) -> str:
    """Markdown."""
    metrics, trial, shape = manifest["metrics"], manifest["config"], manifest["input"]
    classes = [f"| {name} | {share:.1%} |" for name, share in metrics["by_class"].items()]
    return "\n".join(
        [
            f"# {manifest['name']}",
            "",
            f"Tells {len(manifest['classes'])} classes apart in pictures of {shape['width']}x{shape['height']} pixels, "
            f"{shape['channels']} channel{'s' * (shape['channels'] != 1)}.",
            "",
            "## Data",
            "",
            f"Workload `{manifest['workload']}`: {format_split_sizes(manifest['examples'])} "
            "examples. Figures are of the test split, "
            "which neither training nor calibration has seen.",
            "",
            "## How well",
            "",
            f"Accuracy {metrics['accuracy']:.1%}. Scores are calibrated: divided by the temperature "
            f"{metrics['temperature']:.2f} before softmax they are off by {metrics['calibrated_error']:.1%} on "
            f"average, without that by {metrics['calibration_error']:.1%}.",
            "",
            "| class | right |",
            "|---|--:|",
            *classes,
            "",
            "## How it was made",
            "",
            f"Model {trial['model'] or 'of the workload'} with {manifest['parameters']:,} parameters, "
            f"{trial['workers']} x {trial['batch_size']} x "
            f"{trial['grad_accumulation']} examples a step, learning "
            f"rate {trial['lr']:g}, seed {trial['seed']}, "
            f"{manifest['seen']:,} examples seen ({format_end_reason(manifest)}){format_initialization(trial)}. "
            f"Published {manifest['published']}.",
            format_plan_reason(manifest.get("plan")),
            *format_adaptation(manifest.get("remedy")),
            "",
            "## How it runs",
            "",
            f"{manifest['engine']['name']}: {manifest['engine']['why']}. "
            f"Measured on {manifest['machine']['processor']}.",
            "",
            "## Where it ends",
            "",
            "It answers every picture with one of its classes, also one that shows none of them. It was judged on "
            "pictures like those it learned from: another camera, light or background may make it err without its "
            "confidence telling. The reference travels with it so that such a change can be seen.",
            "",
        ]
    )  # fmt: skip


def format_split_sizes(examples: dict[str, int]) -> str:
    """How many examples each split has."""
    return ", ".join(f"{count:,} {part}" for part, count in examples.items())


def format_end_reason(manifest: dict[str, Any]) -> str:
    """Whether the run came to its target."""
    reached = manifest["status"] == "reached_target"
    return f"its target of {manifest['target']:g} on validation {'reached' if reached else 'not reached'}"


def format_initialization(trial: dict[str, Any]) -> str:
    """What it started from."""
    if not trial["init_from"]:
        return ""
    kept = f", the lowest {trial['freeze_stages']} stages kept" if trial["freeze_stages"] else ""
    return f", started from {trial['init_from'].rstrip('/').rpartition('/')[2]}{kept}"


def format_plan_reason(plan_document: dict[str, Any] | None) -> str:
    """What the plan said of it."""
    chosen = (plan_document or {}).get("plan")
    return f"The plan: {chosen['why']}" if chosen else "It was not made by a plan."


def format_adaptation(recipe: dict[str, Any] | None) -> list[str]:
    """To which drift."""
    if not recipe:
        return []
    words = [f"{one['cause']} {one['detail']} {format_number(one['value'])}" for one in recipe["changes"]]
    words += [f"{name} {weight:.2g} times as often" for name, weight in (recipe["weights"] or {}).items()]
    return ["", f"Adapted to a drift of its requests: {', '.join(words)}."]
