"""What the events of a trace say: seconds by layer and pass, and which parts of a step hide the exchange.

The operations of a layer's forward pass lie inside its range. Those of its backward pass are known by the sequence
number that torch gives a node of the graph: the last operation of the forward pass with that number made it. Adding a
gradient to those that are there belongs to the layer whose node ran before, and so does the time until the next node:
the engine frees the saved tensors of the node then.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

BACKWARD_NODE = "autograd::engine::evaluate_function: "
GRADIENT_NODE = "AccumulateGrad"
EXCHANGE_PREFIXES = ("gloo:", "nccl:", "ncclDevKernel", "ncclKernel", "mpi:", "ucc:")
MICROSECONDS = 1e6

TraceEvent = dict[str, Any]
Stretch = tuple[float, float]


class PartSpan(NamedTuple):
    """Stretch of time of a part of a step, in seconds since the steps began."""

    part: str
    start: float
    seconds: float


class TraceSummary(NamedTuple):
    """What the traced steps of one worker say, in mean seconds of a step."""

    forward_seconds: dict[str, float]
    """by name of the layer; the median of steps, as any one may have been interrupted"""
    backward_seconds: dict[str, float]
    hidden_exchange: float
    """seconds of the exchange during the backward pass"""
    exchange_under_data: float
    """seconds of the exchange while the worker waits for batches"""
    spans: list[PartSpan]
    """parts of the steps, and sums over workers as `exchange`"""
    pass_seconds: float
    """median seconds of both passes of a step"""
    step_starts: list[float]
    """seconds at which each step begins: its first forward pass after an optimizer's step"""


def summarize_trace(events: Iterable[TraceEvent], steps: int, layer_prefix: str, range_prefix: str) -> TraceSummary:
    """Summarize the events of so many traced steps; the prefixes are those of ranges of layers and parts."""
    complete = [event for event in events if event.get("ph") == "X"]
    whole = next(event for event in complete if event["name"] == range_prefix + "steps")
    thread, origin = whole["tid"], whole["ts"]
    spans = [
        PartSpan(event["name"].removeprefix(range_prefix), (event["ts"] - origin) / MICROSECONDS, event_duration(event))
        for event in complete
        if event["name"].startswith(range_prefix) and event is not whole and event["tid"] == thread
    ]
    sums = [
        PartSpan("exchange", (event["ts"] - origin) / MICROSECONDS, event_duration(event))
        for event in complete
        if event["name"].startswith(EXCHANGE_PREFIXES) and event["ts"] >= origin
    ]
    exchange = merge_stretches([(span.start, span.start + span.seconds) for span in sums])
    by_part: dict[str, list[Stretch]] = defaultdict(list)
    for span in spans:
        by_part[span.part].append((span.start, span.start + span.seconds))
    starts = find_step_starts(by_part["forward"], steps)
    by_step = split_events(complete, [origin + MICROSECONDS * start for start in starts])
    forward, layer_by_sequence = zip(*(sum_forward(part, layer_prefix, thread) for part in by_step), strict=True)
    backward = [
        sum_backward(part, layers, range_prefix + "backward")
        for part, layers in zip(by_step, layer_by_sequence, strict=True)
    ]
    return TraceSummary(
        find_medians(forward),
        find_medians(backward),
        overlap_seconds(exchange, merge_stretches(by_part["backward"])) / steps,
        overlap_seconds(exchange, merge_stretches(by_part["data"])) / steps,
        sorted([*spans, *sums], key=lambda span: span.start),
        median_pass_seconds(spans, starts),
        starts,
    )


def split_events(events: Sequence[TraceEvent], starts: Sequence[float]) -> list[list[TraceEvent]]:
    """Split events by the steps that begin at `starts`; what lies before the first one belongs to none."""
    parts: list[list[TraceEvent]] = [[] for _ in starts]
    for event in events:
        index = bisect(starts, event["ts"]) - 1
        if index >= 0:
            parts[index].append(event)
    return parts


def median_pass_seconds(spans: Sequence[PartSpan], starts: Sequence[float]) -> float:
    """Return the median over the steps that begin at `starts` of the seconds of their passes; 0 without any."""
    seconds = [0.0] * len(starts)
    for span in spans:
        if span.part in ("forward", "backward"):
            seconds[bisect(starts, span.start) - 1] += span.seconds
    return median(seconds) if seconds else 0.0


def find_medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each name over all rows, 0 in rows without it."""
    return {name: median(row.get(name, 0.0) for row in rows) for name in {name for row in rows for name in row}}


def event_duration(event: TraceEvent) -> float:
    """Return the seconds of an event."""
    return float(event["dur"]) / MICROSECONDS


def sum_forward(
    events: Sequence[TraceEvent], layer_prefix: str, thread: int
) -> tuple[dict[str, float], dict[int, str]]:
    """Return the forward seconds by layer, without those of layers inside it, and the layer of each sequence number."""
    seconds: dict[str, float] = defaultdict(float)
    layer_by_sequence: dict[int, str] = {}
    open_layers: list[TraceEvent] = []
    own_events = (event for event in events if event["tid"] == thread)
    for event in sorted(own_events, key=lambda event: (event["ts"], -event["dur"])):
        while open_layers and event["ts"] >= open_layers[-1]["ts"] + open_layers[-1]["dur"]:
            open_layers.pop()
        if event["name"].startswith(layer_prefix):
            name = event["name"].removeprefix(layer_prefix)
            seconds[name] += event_duration(event)
            if open_layers:
                seconds[open_layers[-1]["name"].removeprefix(layer_prefix)] -= event_duration(event)
            open_layers.append(event)
        elif (sequence := event.get("args", {}).get("Sequence number")) is not None and not is_backward(event):
            if open_layers:
                layer_by_sequence[sequence] = open_layers[-1]["name"].removeprefix(layer_prefix)
            else:  # of the loss, or of what lies around the model
                layer_by_sequence[sequence] = ""
    return {name: max(0.0, value) for name, value in seconds.items()}, layer_by_sequence


def is_backward(event: TraceEvent) -> bool:
    """Return whether an event belongs to a node of the backward pass."""
    return bool(event["args"].get("Fwd thread id")) or event["name"].startswith(BACKWARD_NODE)


def sum_backward(events: Sequence[TraceEvent], layer_by_sequence: dict[int, str], pass_name: str) -> dict[str, float]:
    """Return the backward seconds by layer; `pass_name` is that of the range of a backward pass.

    Nodes that add gradients have no sequence number; the engine runs each right after the node whose gradient it takes.
    """
    seconds: dict[str, float] = defaultdict(float)
    pass_starts = sorted(event["ts"] for event in events if event["name"] == pass_name)
    by_thread: dict[Any, list[TraceEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"].startswith(BACKWARD_NODE):
            by_thread[event["tid"]].append(event)
    for nodes in by_thread.values():
        layer = None
        for index, node in enumerate(nodes):
            if not node["name"].endswith(GRADIENT_NODE):
                layer = layer_by_sequence.get(node.get("args", {}).get("Sequence number"))
            if layer is not None:
                following = nodes[index + 1] if index + 1 < len(nodes) else None
                seconds[layer] += seconds_to_next(node, following, pass_starts)
    return dict(seconds)


def seconds_to_next(node: TraceEvent, following: TraceEvent | None, pass_starts: Sequence[float]) -> float:
    """Return the seconds from the start of a node to that of the next one of its backward pass, or its own if last."""
    if following is None or not pass_starts or bisect(pass_starts, node["ts"]) != bisect(pass_starts, following["ts"]):
        return event_duration(node)
    return float(following["ts"] - node["ts"]) / MICROSECONDS


def merge_stretches(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return stretches of time in order, with those that overlap joined."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def overlap_seconds(first: Sequence[Stretch], second: Sequence[Stretch]) -> float:
    """Return the seconds that lie in a stretch of both lists, each of stretches that do not overlap."""
    return sum(
        max(0.0, min(a_end, b_end) - max(a_start, b_start)) for a_start, a_end in first for b_start, b_end in second
    )


def find_step_starts(forward: Sequence[Stretch], steps: int) -> list[float]:
    """Return when the first forward pass of each step begins; each step has as many of them."""
    per_step = max(1, len(forward) // steps)
    return [start for start, _ in sorted(forward)[::per_step]]
