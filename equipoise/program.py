"""A model as operations in JSON: what torch.export found in it, without the code that made it.

torch.export's own archive may hold pickles that run whatever their writer liked; this holds names of ATen
operators and their arguments, and no file is opened by any of them.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

TYPES: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}
ARITHMETIC = {name: getattr(operator, name) for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")}
CHECKS = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"}
UNDERSCORED = {"_softmax", "_log_softmax", "_to_copy", "_unsafe_view", "_unsafe_index"}
FORBIDDEN = {"from_file"}  # the one operator that opens files


def exported(model: nn.Module, example: Tensor) -> ExportedProgram:
    """The operations of `model` for batches of any size, found by running it on `example` (two pictures at least)."""
    with torch.no_grad():
        return torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim("batch", min=1)},), strict=False)


def to_json(program: ExportedProgram) -> list[dict[str, Any]]:
    """Its operations in order, each with what it takes; weights by their names in `weights`."""
    weights = {
        one.arg.name: one.target for one in program.graph_signature.input_specs if one.kind != InputKind.USER_INPUT
    }
    numbers: dict[fx.Node, int] = {}
    steps: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            step = {"weight": weights[node.name]} if node.name in weights else {"input": True}
        elif node.op == "output":
            step = {"output": plain(node.args[0], numbers)}
        elif skipped(node):
            continue
        else:
            named = {name: plain(value, numbers) for name, value in node.kwargs.items()}
            step = {"do": name_of(node.target), "take": [plain(one, numbers) for one in node.args], "named": named}
        numbers[node] = len(steps)
        steps.append(step)
    return steps


def weights(program: ExportedProgram) -> dict[str, Tensor]:
    """Parameters, buffers and constants by name."""
    held = {**program.state_dict, **program.constants}
    used = [one.target for one in program.graph_signature.input_specs if one.kind != InputKind.USER_INPUT]
    return {name: held[name].detach().clone().contiguous() for name in used if name is not None}


def skipped(node: fx.Node) -> bool:
    """Whether a node only checks what export assumed."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in CHECKS


def name_of(target: Any) -> str:
    """An operator as NAME.OVERLOAD, or a word of arithmetic on sizes."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return f"{target._opname}.{target._overloadname}"
    for name, function in ARITHMETIC.items():
        if target is function:
            return name
    raise ValueError(f"the model uses {target}, which a bundle cannot hold: only PyTorch's own operators are")


def plain(value: Any, numbers: Mapping[fx.Node, int]) -> Any:
    """An argument as JSON."""
    if isinstance(value, fx.Node):
        return {"step": numbers[value]}
    if isinstance(value, list | tuple):
        return [plain(one, numbers) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, name in TYPES.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise ValueError(f"the model gives an operator {value!r}, which a bundle cannot hold")


def loaded(steps: list[dict[str, Any]], weights: Mapping[str, Tensor]) -> fx.GraphModule:
    """A function of pictures that does the steps; refuses what is not a list of known operators."""
    graph, root, nodes = fx.Graph(), nn.Module(), list[Any]()
    try:
        for step in steps:
            nodes.append(node_of(step, graph, root, nodes, weights))
        graph.lint()
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the bundle's program is not one ({type(error).__name__}: {error})") from None
    return fx.GraphModule(root, graph)


def node_of(
    step: dict[str, Any], graph: fx.Graph, root: nn.Module, nodes: list[Any], weights: Mapping[str, Tensor]
) -> fx.Node:
    """One step as a node, under a name of our own."""
    if "input" in step:
        return graph.placeholder(f"pictures_{len(nodes)}")
    if "weight" in step:
        name = f"weight_{len(nodes)}"
        root.register_buffer(name, weights[step["weight"]])
        return graph.get_attr(name)
    if "output" in step:
        end: fx.Node = graph.output(tuple(value_of(one, nodes) for one in step["output"]))
        return end
    taken, named = value_of(step["take"], nodes), {name: value_of(one, nodes) for name, one in step["named"].items()}
    node: fx.Node = graph.call_function(function_of(step["do"]), tuple(taken), named)
    return node


def function_of(name: str) -> Callable[..., Any]:
    """The operator of a name."""
    if name in ARITHMETIC:
        known: Callable[..., Any] = ARITHMETIC[name]
        return known
    base, _, overload = name.partition(".")
    if base in FORBIDDEN or (base.startswith("_") and base not in UNDERSCORED) or not base.isidentifier():
        raise ValueError(f"the bundle's program asks for the operator {name!r}, which no program needs")
    found: Callable[..., Any] = getattr(getattr(torch.ops.aten, base), overload)
    return found


def value_of(value: Any, nodes: list[Any]) -> Any:
    """An argument from JSON."""
    if isinstance(value, list):
        return [value_of(one, nodes) for one in value]
    if not isinstance(value, dict):
        return value
    [(kind, held)] = value.items()
    if kind == "step":
        return nodes[held]
    if kind == "device":
        return torch.device(held)
    found = getattr(torch, held)
    if kind not in TYPES.values() or TYPES.get(type(found)) != kind:
        raise ValueError(f"the bundle's program gives {held!r} as a {kind}")
    return found
