"""A model's card: what it is, how well it does, what it was made by, and where it ends. For people."""

from typing import Any

from equipoise.formatting import number


def card(facts: dict[str, Any]) -> str:
    """Markdown."""
    metrics, trial, shape = facts["metrics"], facts["trial"], facts["input"]
    classes = [f"| {name} | {share:.1%} |" for name, share in metrics["by_class"].items()]
    return "\n".join(
        [
            f"# {facts['name']}",
            "",
            f"Tells {len(facts['classes'])} classes apart in pictures of {shape['width']}x{shape['height']} pixels, "
            f"{shape['channels']} channel{'s' * (shape['channels'] != 1)}.",
            "",
            "## Data",
            "",
            f"Workload `{facts['workload']}`: {counted(facts['examples'])} examples. Figures are of the test split, "
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
            f"Model {trial['model'] or 'of the workload'} with {facts['parameters']:,} parameters, "
            f"{trial['workers']} x {trial['batch']} x "
            f"{trial['accumulate']} examples a step, learning rate {trial['lr']:g}, seed {trial['seed']}, "
            f"{facts['seen']:,} examples seen ({ended(facts)}){begun(trial)}. Published {facts['published']}.",
            planned(facts.get("plan")),
            *adapted(facts.get("remedy")),
            "",
            "## How it runs",
            "",
            f"{facts['engine']['name']}: {facts['engine']['why']}. Measured on {facts['machine']['processor']}.",
            "",
            "## Where it ends",
            "",
            "It answers every picture with one of its classes, also one that shows none of them. It was judged on "
            "pictures like those it learned from: another camera, light or background may make it err without its "
            "confidence telling. The reference travels with it so that such a change can be seen.",
            "",
        ]
    )  # fmt: skip


def counted(examples: dict[str, int]) -> str:
    """How many examples each split has."""
    return ", ".join(f"{count:,} {part}" for part, count in examples.items())


def ended(facts: dict[str, Any]) -> str:
    """Whether the run came to its target."""
    reached = facts["ended"] == "reached"
    return f"its target of {facts['target']:g} on validation {'reached' if reached else 'not reached'}"


def begun(trial: dict[str, Any]) -> str:
    """What it started from."""
    if not trial["init"]:
        return ""
    kept = f", the lowest {trial['freeze']} stages kept" if trial["freeze"] else ""
    return f", started from {trial['init'].rstrip('/').rpartition('/')[2]}{kept}"


def planned(plan: dict[str, Any] | None) -> str:
    """What the plan said of it."""
    chosen = (plan or {}).get("plan")
    return f"The plan: {chosen['why']}" if chosen else "It was not made by a plan."


def adapted(remedy: dict[str, Any] | None) -> list[str]:
    """To which drift."""
    if not remedy:
        return []
    words = [f"{one['cause']} {one['detail']} {number(one['value'])}" for one in remedy["changes"]]
    words += [f"{name} {weight:.2g} times as often" for name, weight in (remedy["weights"] or {}).items()]
    return ["", f"Adapted to a drift of its requests: {', '.join(words)}."]
