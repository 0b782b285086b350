"""Engines in parts that take a millisecond each, so that an event loop can run them with other work in between.

A model that takes longer than the event loop may be held would have to run in a thread, and two hand-overs, after which
either thread begins with cold caches, cost a tenth of a millisecond or more. Cutting its graph in two costs 2 %.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from equipoise.bundle.engine_benchmark import compare_values
from equipoise.bundle.engines import Engine, OnnxEngine
from equipoise.bundle.folder import ONNX_FILE
from equipoise.bundle.kinds.base_bundle import Bundle
from services.serving.batch_times import INLINE_SECONDS

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_PART_SECONDS = 0.6 * INLINE_SECONDS  # alone, with warm caches: a busy machine takes longer
MAX_PARTS = 4
MAX_LOSS = 1.25  # time of all parts over that of the whole; it is 1.05, but replicas start beside each other
TIMED_ROUNDS = 20
SPLIT_KINDS = ("image", "boxes")  # their requests give the engine's inputs one by one

logger = logging.getLogger(__name__)


def split_engine(bundle: Bundle) -> tuple[Engine, ...]:
    """Return the engine of a bundle in as few short parts as it takes; none if it is short as a whole, or too long."""
    if not isinstance(bundle.run_engine, OnnxEngine) or bundle.kind not in SPLIT_KINDS:
        return ()
    kept, _ = bundle.load_kept_examples(1)
    [whole_seconds] = measure_seconds([partial(bundle.run_engine, *kept)])
    num_parts = math.ceil(whole_seconds / MAX_PART_SECONDS)
    if not 1 < num_parts <= MAX_PARTS:
        return ()
    try:
        parts = cut_engine(load_graph(bundle), kept, [whole_seconds * i / num_parts for i in range(1, num_parts)])
        return parts if are_usable(parts, bundle.run_engine, kept) else ()
    except Exception:  # a graph may be of any form, and the engine runs as a whole
        logger.warning("%s runs in a thread: its graph cannot be cut", bundle.name, exc_info=True)
        return ()


def load_graph(bundle: Bundle) -> "ModelProto":
    """Load the graph of a bundle, with the types of all tensors."""
    import onnx  # takes a third of a second, which most models need not pay

    return onnx.shape_inference.infer_shapes(onnx.load(bundle.folder / ONNX_FILE))


def cut_engine(model: "ModelProto", inputs: Sequence[Tensor], cut_seconds: Sequence[float]) -> tuple[Engine, ...]:
    """Cut a model where about so many seconds of it have passed, and return its parts."""
    import onnx.utils

    extractor = onnx.utils.Extractor(model)
    first_inputs = [value.name for value in model.graph.input]
    last_outputs = [value.name for value in model.graph.output]

    def load_part(input_names: list[str], output_names: list[str]) -> OnnxEngine:
        return OnnxEngine(extractor.extract_model(input_names, output_names).SerializeToString())

    @cache
    def measure_until(tensor: str) -> float:
        [seconds] = measure_seconds([partial(load_part(first_inputs, [tensor]), *inputs)])
        return seconds

    names = list(list_cuts(model))
    cuts = sorted({find_nearest(names, measure_until, seconds) for seconds in cut_seconds}, key=names.index)
    bounds = [first_inputs, *([cut] for cut in cuts), last_outputs]
    return tuple(load_part(*bounds[i : i + 2]) for i in range(len(bounds) - 1))


def list_cuts(model: "ModelProto") -> Iterator[str]:
    """Yield the tensors that hold all that is known at their place in the graph, so that it can be cut there."""
    last_uses = {name: index for index, node in enumerate(model.graph.node) for name in node.input}
    last_uses |= {value.name: len(model.graph.node) for value in model.graph.output}
    needed = {value.name for value in model.graph.input}
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Constant":  # a part gets its own copy
            needed.update(node.output)
        needed = {name for name in needed if last_uses.get(name, -1) > index}
        if len(needed) == 1 and node.output[0] in needed:
            yield node.output[0]


def find_nearest(names: Sequence[str], measure_until: Callable[[str], float], seconds: float) -> str:
    """Return the cut until which a model takes about so many seconds, by bisection."""
    low, high = 0, len(names) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measure_until(names[middle]) < seconds else (low, middle)
    return min((names[low], names[high]), key=lambda name: abs(measure_until(name) - seconds))


def are_usable(parts: Sequence[Engine], engine: Engine, inputs: Sequence[Tensor]) -> bool:
    """Return whether parts answer as the engine does, in little more time."""
    calls, tensors = [partial(engine, *inputs)], tuple(inputs)
    for part in parts:
        calls.append(partial(part, *tensors))
        tensors = part(*tensors)
    whole_seconds, *seconds = measure_seconds(calls)
    return sum(seconds) <= MAX_LOSS * whole_seconds and compare_values(engine(*inputs), tensors)[1]


def measure_seconds(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least CPU time of each of several calls, made in turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(TIMED_ROUNDS):
        for call, times in zip(calls, seconds, strict=True):
            started_at = time.thread_time()
            call()
            times.append(time.thread_time() - started_at)
    return [*map(min, seconds)]
