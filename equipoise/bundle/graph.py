"""A model as a list of operations in JSON: the graph that torch.export traced, without the code that built the model.

torch.export's own archive may hold pickles, which run any code that their author chose; a program holds only names of
ATen operators and their arguments, and none of the allowed operators opens a file. `program` runs it.

Why by hand: docs/decisions/0003-safe-program-format.md.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from equipoise.bundle.operators import find_operator_name
from equipoise.bundle.program import SPECIAL_NUMBERS, TORCH_TYPE_NAMES
from equipoise.bundle.program_input import ProgramInput, SizeBounds
from equipoise.errors import EquipoiseError

RECURRENT_WEIGHTS_WARNING = r"The tensor attributes self\.(\S+\.)?_flat_weights"  # which nn.LSTM and nn.GRU rebuild
ANY_LENGTH = "any_length"  # key of a graph's notes: the sizes that torch.export took as fixed may vary


def export_model(
    model: nn.Module, example: Tensor | Sequence[Tensor], keywords: Mapping[str, Any] | None = None
) -> ExportedProgram:
    """Trace the operations of `model` for any batch size by running it on examples (at least two).

    The length of sequences may differ from that of the example as far as the model's operations allow it. Keywords
    that are no tensors are options of the model, which the program keeps.
    """
    arguments = (example,) if isinstance(example, Tensor) else tuple(example)
    program = trace_model(model, arguments, keywords or {})
    if any(is_specialized_size(size) for node in find_placeholders(program) for size in find_shape(node)):
        program.graph_module.meta[ANY_LENGTH] = is_independent_of_length(program, model, arguments, keywords or {})
    return program


def trace_model(model: nn.Module, arguments: tuple[Tensor, ...], keywords: Mapping[str, Any]) -> ExportedProgram:
    """Trace `model` on one example, with the dimensions variable that may be so."""
    tensors = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", RECURRENT_WEIGHTS_WARNING, UserWarning)
        return torch.export.export(
            model.eval(),
            arguments,
            dict(keywords),
            dynamic_shapes=choose_dynamic_shapes(tensors),
            strict=False,
        )


def choose_dynamic_shapes(examples: list[Tensor]) -> ShapesCollection:
    """Return the dimensions that may differ from those of the examples: the batch and the length of sequences.

    The batch comes first in every input; one whose first size is another holds something else, such as positions.
    """
    shapes, batch = ShapesCollection(), Dim("batch", min=1)
    for tensor in (tensor for tensor in examples if tensor.ndim):
        first = batch if tensor.shape[0] == examples[0].shape[0] else Dim.AUTO
        shapes[tensor] = {0: first, 1: Dim.AUTO} if is_sequence(tensor) else {0: first}
    return shapes


def is_sequence(tensor: Tensor) -> bool:
    """Return whether the second dimension may be a length: of integers that are no pixels, or of vectors of floats."""
    has_length = tensor.ndim == 3 if tensor.is_floating_point() else tensor.ndim > 1 and tensor.dtype != torch.uint8
    return has_length and tensor.shape[1] > 1  # torch.export keeps a size of 1, and warns where it may differ


def is_independent_of_length(
    program: ExportedProgram, model: nn.Module, arguments: tuple[Tensor, ...], keywords: Mapping[str, Any]
) -> bool:
    """Return whether a shorter example gives the same operations, although torch.export took the length as fixed.

    It does so for nn.GRU, whose operator takes any length but is traced step by step.
    """
    shorter = {name: shorten_sequence(value) for name, value in keywords.items()}
    try:
        other = trace_model(model, tuple(shorten_sequence(tensor) for tensor in arguments), shorter)
    except Exception:  # the model may raise anything for a length that it does not take
        return False
    return (
        str(program.graph) == str(other.graph)
        and program.constants.keys() == other.constants.keys()
        and all(torch.equal(value, other.constants[name]) for name, value in program.constants.items())
    )


def shorten_sequence(value: Any) -> Any:
    """Return a sequence without its last element; other values and short sequences as they are."""
    can_be_shorter = isinstance(value, Tensor) and is_sequence(value) and value.shape[1] > 2
    return value[:, :-1].contiguous() if can_be_shorter else value


def serialize_graph(program: ExportedProgram) -> list[dict[str, Any]]:
    """Return a program's operations in order, each with its arguments; weights by their names in `collect_weights`."""
    nodes = find_live_nodes(program)
    require_allowed_operators(nodes)
    weights, inputs = find_weight_names(program), describe_inputs(program)
    indices: dict[fx.Node, int] = {}
    instructions: list[dict[str, Any]] = []
    for node in nodes:
        if node.op == "placeholder":
            instruction = {"weight": weights[node.name]} if node.name in weights else inputs[node.name].to_json()
        elif node.op == "output":
            names = find_output_names(program)
            instruction = {"output": encode_argument(node.args[0], indices)} | ({"names": names} if names else {})
        else:
            keywords = {name: encode_argument(value, indices) for name, value in node.kwargs.items()}
            instruction = {
                "do": find_operator_name(node.target),
                "take": [encode_argument(argument, indices) for argument in node.args],
                "named": keywords,
            }
        indices[node] = len(instructions)
        instructions.append(instruction)
    return instructions


def collect_weights(program: ExportedProgram) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants that a program uses, by name; a shared one has one name."""
    tensors = {**program.state_dict, **program.constants}
    names = dict.fromkeys(find_weight_names(program).values())
    return {name: tensors[name].detach().clone().contiguous() for name in names}


def find_weight_names(program: ExportedProgram) -> dict[str, str]:
    """Return the name of each weight that a program uses, by its placeholder; the first one if it has several."""
    tensors = {**program.state_dict, **program.constants}
    live = {node.name for node in find_live_nodes(program)}
    first_names: dict[tuple[Any, ...], str] = {}
    names = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT and spec.target is not None and spec.arg.name in live:
            tensor = tensors[spec.target]
            identity = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            names[spec.arg.name] = first_names.setdefault(identity, spec.target)
    return names


def describe_inputs(program: ExportedProgram) -> dict[str, ProgramInput]:
    """Return the tensors that a program takes, by their placeholders; constants among the arguments are left out."""
    positional, keywords = program.call_spec.in_spec.children()
    if not all(child.is_leaf() for child in (*positional.children(), *keywords.children())):
        raise EquipoiseError(
            "export-failed",
            "cannot store the model in a bundle: it takes a list, tuple or dictionary",
            "let it take each tensor as an argument of its own",
        )
    keys: list[str | None] = [*[None] * positional.num_children, *(keywords.context or [])]
    values = {node.name: node.meta["val"] for node in find_placeholders(program)}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    inputs: dict[str, ProgramInput] = {}
    for spec, keyword in zip(specs, keys, strict=True):
        if is_tensor_input(spec):
            value = values[spec.arg.name]
            sizes = tuple(find_size_bounds(size, program) for size in value.shape)
            inputs[spec.arg.name] = ProgramInput(len(inputs) if keyword is None else keyword, value.dtype, sizes)
    return inputs


def is_tensor_input(spec: InputSpec) -> bool:
    """Return whether an input is a tensor that the caller gives."""
    return spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)


def find_size_bounds(size: int | torch.SymInt, program: ExportedProgram) -> SizeBounds:
    """Return the sizes of a dimension for which a program was traced.

    A least size of 2 stands for any: torch.export assumes that a variable size is neither 0 nor 1.
    """
    if isinstance(size, int) or (is_specialized_size(size) and not program.graph_module.meta.get(ANY_LENGTH)):
        return int(size), int(size)
    bounds = program.range_constraints.get(size.node.expr)
    if bounds is None:
        return 0, None
    least = int(bounds.lower) if bounds.lower.is_Integer and bounds.lower > 2 else 0
    return least, int(bounds.upper) if bounds.upper.is_Integer else None


def is_specialized_size(size: int | torch.SymInt) -> bool:
    """Return whether torch.export took a size as fixed that it was allowed to vary."""
    return not isinstance(size, int) and bool(size.node.expr.is_number)


def find_placeholders(program: ExportedProgram) -> list[fx.Node]:
    """Return the nodes of a program's inputs and weights."""
    return [node for node in program.graph.nodes if node.op == "placeholder"]


def find_shape(node: fx.Node) -> Sequence[int | torch.SymInt]:
    """Return the traced shape of a placeholder; an empty one for a constant that is no tensor."""
    return getattr(node.meta.get("val"), "shape", ())


def find_output_names(program: ExportedProgram) -> list[str] | None:
    """Return the names of the outputs if the model returns a dictionary of tensors, also one of transformers."""
    spec = program.call_spec.out_spec
    names = spec.context if not spec.is_leaf() else None
    if not isinstance(names, list) or len(names) != spec.num_children or not all(isinstance(n, str) for n in names):
        return None
    return names if all(child.is_leaf() for child in spec.children()) else None


def find_live_nodes(program: ExportedProgram) -> list[fx.Node]:
    """Return the nodes that the outputs depend on, and the inputs, in order: no checks of torch.export's assumptions.

    An operator that changes its argument counts as used, since a later one may read that.
    """
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if is_tensor_input(spec)}
    live: set[fx.Node] = set()
    for node in reversed(program.graph.nodes):
        changes_argument = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if node.op == "output" or node.name in inputs or changes_argument or not live.isdisjoint(node.users):
            live.add(node)
    return [node for node in program.graph.nodes if node in live]


def require_allowed_operators(nodes: list[fx.Node]) -> None:
    """Refuse operators that a bundle's program may not run, and name all of them."""
    targets = [node.target for node in nodes if node.op == "call_function"]
    refused = sorted({describe_target(target) for target in targets if find_operator_name(target) is None})
    if refused:
        subject = f"the operator {refused[0]} is" if len(refused) == 1 else f"the operators {', '.join(refused)} are"
        raise EquipoiseError(
            "export-failed",
            f"cannot store the model in a bundle: {subject} not on the list of operators that a bundle may run",
            "use other operators of PyTorch",
        )


def describe_target(target: Any) -> str:
    """Return the name of an operator for people."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target.name())
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def encode_argument(value: Any, node_indices: Mapping[fx.Node, int]) -> Any:
    """Return an operator's argument in its JSON form."""
    if isinstance(value, fx.Node):
        return {"step": node_indices[value]}
    if isinstance(value, list | tuple):
        return [encode_argument(item, node_indices) for item in value]
    if isinstance(value, float) and (str(value) in SPECIAL_NUMBERS):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, name in TORCH_TYPE_NAMES.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise EquipoiseError(
        "export-failed",
        f"cannot store the model in a bundle: it calls an operator with {value!r}, which has no JSON form",
    )
