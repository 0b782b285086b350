"""Place of a stage in the graph of a model: which nodes and weights are its own, and what it receives and hands on."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import fx

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.training.sharding.pipeline.model_trace import ModelTrace, build_stage_module, find_result
from equipoise.training.sharding.pipeline.piece_measurement import NodeMeasurement
from equipoise.training.sharding.pipeline.stage_partition import partition_pieces
from equipoise.training.sharding.pipeline.tensor_layout import TensorLayout


class StageBoundary(NamedTuple):
    """Value that one stage hands to the next."""

    node: int
    """number of the first node of the next stage"""
    layout: TensorLayout
    """of a micro-batch like the one that was measured"""
    needs_gradient: bool
    """whether some weight before it is trained"""
    carries_generator: bool
    """whether random numbers are drawn before it, so that the next stage draws those that follow"""


def cut_stages(trace: ModelTrace, measurements: Sequence[NodeMeasurement], stages: int) -> list[StageBoundary]:
    """Return the boundaries between stages whose slowest one is the fastest; refuse a model of fewer pieces."""
    sources = {cut: trace.find_cut_source(cut) for cut in trace.list_cuts()}
    layouts = {cut: layout for cut, source in sources.items() if (layout := measurements[source].layout) is not None}
    starts = [0, *layouts]
    require_enough_pieces(len(starts), stages)
    seconds = [
        sum(node.seconds for node in measurements[start:end]) for start, end in pairwise([*starts, len(measurements)])
    ]
    gradients = trace.list_gradients()
    boundaries = []
    for pieces in partition_pieces(seconds, stages)[1:]:
        node = starts[pieces.start]
        draws = any(measurement.draws_numbers for measurement in measurements[:node])
        boundaries.append(StageBoundary(node, layouts[node], gradients[sources[node]], draws))
    return boundaries


def require_enough_pieces(pieces: int, stages: int) -> None:
    """Refuse a model that has fewer pieces than stages."""
    if pieces < stages:
        raise EquipoiseError(
            "sharding-unusable",
            f"cannot cut the model into {stages} stages for --sharding pipeline:{stages}: it has"
            f" {pluralize(pieces, 'piece')} between which a single tensor passes",
            f"choose --sharding pipeline:{pieces} or full" if pieces > 1 else "choose --sharding full",
        )


def require_uncompiled(config: TrainConfig) -> None:
    """Refuse to compile a model that is to be cut."""
    if config.compile:
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --compile with --sharding {config.sharding}: it compiles whole models",
            "omit one of them",
        )


def select_nodes(nodes: Sequence[fx.Node], boundaries: Sequence[StageBoundary], stage: int) -> list[fx.Node]:
    """Return the nodes of a stage."""
    bounds = [0, *(boundary.node for boundary in boundaries), len(nodes)]
    return list(nodes[bounds[stage] : bounds[stage + 1]])


def build_stage(trace: ModelTrace, graph: fx.Graph, boundaries: Sequence[StageBoundary], part: int) -> fx.GraphModule:
    """Return a module that computes a stage, as the graph of training or that of evaluation has it."""
    nodes = trace.nodes if graph is trace.train_graph else trace.eval_nodes
    sources = [trace.find_cut_source(boundary.node) for boundary in boundaries]
    received = nodes[sources[part - 1]] if part else None
    result = find_result(graph) if part == len(boundaries) else nodes[sources[part]]
    return build_stage_module(trace.model, select_nodes(nodes, boundaries, part), received, result)


def find_weight_holders(
    trace: ModelTrace, boundaries: Sequence[StageBoundary], names: Sequence[Sequence[str]]
) -> list[tuple[int, ...]]:
    """Return the stages that use each weight, given by all of its names; the first stage holds what none uses."""
    users = trace.list_users_of_weights()
    bounds = [0, *(boundary.node for boundary in boundaries), len(users)]
    used = [set().union(*users[start:end]) for start, end in pairwise(bounds)]
    return [
        tuple(stage for stage, stage_names in enumerate(used) if not stage_names.isdisjoint(aliases)) or (0,)
        for aliases in names
    ]
