"""A model as a list of operations in JSON: the graph that torch.export traced, without the code that built the model.

torch.export's own archive may hold pickles, which run any code that their author chose; a program holds only names of
ATen operators and their arguments, and none of the allowed operators opens a file.

Why by hand: docs/decisions/0003-safe-program-format.md.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from equipoise.errors import EquipoiseError

TORCH_TYPE_NAMES: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}
SIZE_ARITHMETIC = {name: getattr(operator, name) for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")}
CHECK_OPERATORS = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"}
MAX_COMPUTED_SIZE = 1 << 40  # largest result of a program's arithmetic on sizes
Instruction = Callable[[list[Any], Tensor], Any]
OPERATOR_NAMES_TEXT = """
    abs adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d add addmm amax amin arange argmax avg_pool1d
    avg_pool2d baddbmm batch_norm bmm cat ceil celu chunk clamp clamp_max clamp_min clone concat constant_pad_nd
    contiguous conv1d conv2d conv3d cos cumsum detach div dropout einsum elu eq erf exp expand expand_as eye
    feature_dropout fill flatten flip floor full full_like gather ge gelu glu group_norm gt hardsigmoid hardswish
    hardtanh index index_select instance_norm layer_norm le leaky_relu lift_fresh_copy linalg_vector_norm linear log
    log_softmax lt masked_fill matmul max max_pool1d max_pool2d maximum mean min minimum mish mm movedim mul narrow
    ne neg new_full new_ones new_zeros norm ones ones_like pad permute pixel_shuffle pixel_unshuffle pow prelu prod
    reciprocal relu relu6 repeat reshape rms_norm roll round rsqrt rsub scaled_dot_product_attention select selu
    sigmoid silu sin slice softmax softplus split split_with_sizes sqrt square squeeze stack std sub sum swapaxes
    sym_size t tanh tile to transpose tril triu unbind unflatten unsqueeze upsample_bicubic2d upsample_bilinear2d
    upsample_nearest2d var view view_as where zero zeros zeros_like
"""
ALLOWED_OPERATORS = frozenset(OPERATOR_NAMES_TEXT.split())
"""names of ATen operators without the underscore of in-place variants: arithmetic on tensors that checks its arguments;
none reads uninitialized memory, exposes the internals of a kernel or opens a file"""


def export_model(model: nn.Module, example: Tensor) -> ExportedProgram:
    """Trace the operations of `model` for any batch size by running it on `example` (at least two images)."""
    with torch.no_grad():
        return torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim("batch", min=1)},), strict=False)


def serialize_graph(program: ExportedProgram) -> list[dict[str, Any]]:
    """Return a program's operations in order, each with its arguments; weights by their names in `collect_weights`."""
    weights = {
        spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind != InputKind.USER_INPUT
    }
    indices: dict[fx.Node, int] = {}
    instructions: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            instruction = {"weight": weights[node.name]} if node.name in weights else {"input": True}
        elif node.op == "output":
            instruction = {"output": encode_argument(node.args[0], indices)}
        elif is_check_node(node):
            continue
        else:
            keywords = {name: encode_argument(value, indices) for name, value in node.kwargs.items()}
            instruction = {
                "do": operator_name(node.target),
                "take": [encode_argument(argument, indices) for argument in node.args],
                "named": keywords,
            }
        indices[node] = len(instructions)
        instructions.append(instruction)
    return instructions


def collect_weights(program: ExportedProgram) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants that a program uses, by name."""
    tensors = {**program.state_dict, **program.constants}
    used = [spec.target for spec in program.graph_signature.input_specs if spec.kind != InputKind.USER_INPUT]
    return {name: tensors[name].detach().clone().contiguous() for name in used if name is not None}


def is_check_node(node: fx.Node) -> bool:
    """Return whether a node only checks an assumption of torch.export."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in CHECK_OPERATORS


def operator_name(target: Any) -> str:
    """Return an operator as NAME.OVERLOAD, or as a key of `SIZE_ARITHMETIC`."""
    if (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace == "aten"
        and target._opname.removesuffix("_") in ALLOWED_OPERATORS
    ):
        return f"{target._opname}.{target._overloadname}"
    for name, function in SIZE_ARITHMETIC.items():
        if target is function:
            return name
    raise EquipoiseError(
        "export-failed",
        f"cannot store the model in a bundle: it uses {target}",
        "use only common operators of PyTorch",
    )


def encode_argument(value: Any, node_indices: Mapping[fx.Node, int]) -> Any:
    """Return an operator's argument in its JSON form."""
    if isinstance(value, fx.Node):
        return {"step": node_indices[value]}
    if isinstance(value, list | tuple):
        return [encode_argument(item, node_indices) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, name in TORCH_TYPE_NAMES.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise EquipoiseError(
        "export-failed",
        f"cannot store the model in a bundle: it calls an operator with {value!r}, which has no JSON form",
    )


class Program:
    """Function of a batch of images that executes the instructions of a bundle."""

    def __init__(self, instructions: list[Instruction], last_uses: list[list[int]]) -> None:
        """Keep the instructions; `last_uses` lists, for each, the results that no later instruction needs."""
        self.instructions = instructions
        self.last_uses = last_uses

    def __call__(self, pictures: Tensor) -> Any:
        """Return the result of the last instruction: logits and features."""
        results: list[Any] = []
        for instruction, unneeded in zip(self.instructions, self.last_uses, strict=True):
            results.append(instruction(results, pictures))
            for index in unneeded:
                results[index] = None
        return results[-1]


def load_program(instructions: Any, weights: Mapping[str, Tensor]) -> Program:
    """Build a bundle's program; refuse instructions that are not allowed operators on earlier results."""
    try:
        built = [build_instruction(instruction, weights) for instruction in instructions]
        uses = [sorted(set(find_result_indices(instruction))) for instruction in instructions]
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: {type(error).__name__}: {error}", "publish it again"
        ) from None
    if not instructions or "output" not in instructions[-1] or sum("input" in step for step in instructions) != 1:
        raise EquipoiseError(
            "bundle-invalid", "cannot load the bundle's program: it must have one input and end with an output"
        )
    for index, used in enumerate(uses):
        if used and not 0 <= used[0] <= used[-1] < index:
            raise EquipoiseError(
                "bundle-invalid",
                f"cannot load the bundle's program: step {index} uses a result that is not computed before it",
            )
    last_use = {result: index for index, used in enumerate(uses) for result in used}
    return Program(
        built, [[result for result, last in last_use.items() if last == index] for index in range(len(instructions))]
    )


def build_instruction(instruction: dict[str, Any], weights: Mapping[str, Tensor]) -> Instruction:
    """Return one instruction as a function of the earlier results and the images."""
    if "input" in instruction:
        return lambda results, pictures: pictures
    if "weight" in instruction:
        weight = weights[instruction["weight"]]
        return lambda results, pictures: weight
    if "output" in instruction:
        outputs = [*decode_argument(instruction["output"])]
        return lambda results, pictures: tuple(resolve_argument(output, results) for output in outputs)
    function, arguments = lookup_operator(instruction["do"]), decode_argument(instruction["take"])
    keywords = {str(name): decode_argument(value) for name, value in instruction["named"].items()}
    return lambda results, pictures: function(
        *[resolve_argument(value, results) for value in arguments],
        **{name: resolve_argument(value, results) for name, value in keywords.items()},
    )


@dataclass(frozen=True)
class ResultRef:
    """Reference to the result of the instruction at an index."""

    index: int


def resolve_argument(value: Any, results: list[Any]) -> Any:
    """Return an argument with its references replaced by the results."""
    if isinstance(value, ResultRef):
        return results[value.index]
    return [resolve_argument(item, results) for item in value] if isinstance(value, list) else value


def find_result_indices(value: Any) -> Iterator[int]:
    """Yield the indices of the instructions whose results an instruction uses."""
    if isinstance(value, dict):
        if value.keys() == {"step"}:
            yield value["step"]
        else:
            for item in value.values():
                yield from find_result_indices(item)
    elif isinstance(value, list):
        for item in value:
            yield from find_result_indices(item)


def lookup_operator(name: str) -> Callable[..., Any]:
    """Return the allowed operator with a name from a bundle's program."""
    if name in SIZE_ARITHMETIC:
        return partial(apply_size_arithmetic, name)
    base, _, overload = name.partition(".")
    if base.removesuffix("_") not in ALLOWED_OPERATORS:
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: the operator {name!r} is not allowed in this version"
        )
    overloaded: Any = getattr(getattr(torch.ops.aten, base), overload)
    if not isinstance(overloaded, torch._ops.OpOverload):
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: there is no operator {name!r} in PyTorch"
        )
    return overloaded


def apply_size_arithmetic(name: str, *values: Any) -> Any:
    """Compute with sizes, bounded by `MAX_COMPUTED_SIZE`; `getitem` selects one of several results."""
    if name == "getitem":
        results, index = values
        if not isinstance(results, list | tuple) or not isinstance(index, int):
            raise EquipoiseError(
                "bundle-invalid",
                "cannot run the bundle's program: getitem needs a list of results and an integer index",
            )
        return results[index]
    if not all(isinstance(value, int | float) for value in values):
        raise EquipoiseError("bundle-invalid", f"cannot run the bundle's program: {name} needs numbers")
    result = SIZE_ARITHMETIC[name](*values)
    if abs(result) > MAX_COMPUTED_SIZE:
        raise EquipoiseError(
            "bundle-invalid", f"cannot run the bundle's program: it computes a size above {MAX_COMPUTED_SIZE}"
        )
    return result


def decode_argument(value: Any) -> Any:
    """Return an operator's argument from its JSON form."""
    if isinstance(value, list):
        return [decode_argument(item) for item in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "step":
        if not isinstance(content, int) or isinstance(content, bool):
            raise EquipoiseError(
                "bundle-invalid", f"cannot load the bundle's program: {content!r} is not the index of a step"
            )
        return ResultRef(content)
    if kind == "device":
        return torch.device("cpu") if content == "cpu" else torch.device(content)
    constant = getattr(torch, content)
    if kind not in TORCH_TYPE_NAMES.values() or TORCH_TYPE_NAMES.get(type(constant)) != kind:
        raise EquipoiseError("bundle-invalid", f"cannot load the bundle's program: {content!r} is not a {kind}")
    return constant
