"""A model as operations in JSON: what torch.export found in it, without the code that made it.

torch.export's own archive may hold pickles that run whatever their writer liked; this holds names of ATen
operators and their arguments, and no file is opened by any of them.
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

TORCH_TYPE_NAMES: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}
SIZE_ARITHMETIC = {name: getattr(operator, name) for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")}
CHECK_OPERATORS = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"}
MAX_COMPUTED_SIZE = 1 << 40  # of sizes that a program reckons with
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
"""of ATen, by their names without the underscore that says in place: arithmetic on tensors, each of which checks what
it is given; nothing that reads memory as it comes, calls a kernel's inside or opens a file"""


def export_model(model: nn.Module, example: Tensor) -> ExportedProgram:
    """The operations of `model` for batches of any size, found by running it on `example` (two pictures at least)."""
    with torch.no_grad():
        return torch.export.export(model.eval(), (example,), dynamic_shapes=({0: Dim("batch", min=1)},), strict=False)


def serialize_graph(program: ExportedProgram) -> list[dict[str, Any]]:
    """Its operations in order, each with what it takes; weights by their names in `collect_weights`."""
    weights = {
        one.arg.name: one.target for one in program.graph_signature.input_specs if one.kind != InputKind.USER_INPUT
    }
    numbers: dict[fx.Node, int] = {}
    steps: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            step = {"weight": weights[node.name]} if node.name in weights else {"input": True}
        elif node.op == "output":
            step = {"output": encode_argument(node.args[0], numbers)}
        elif is_check_node(node):
            continue
        else:
            named = {name: encode_argument(value, numbers) for name, value in node.kwargs.items()}
            step = {
                "do": operator_name(node.target),
                "take": [encode_argument(one, numbers) for one in node.args],
                "named": named,
            }
        numbers[node] = len(steps)
        steps.append(step)
    return steps


def collect_weights(program: ExportedProgram) -> dict[str, Tensor]:
    """Parameters, buffers and constants by name."""
    held = {**program.state_dict, **program.constants}
    used = [one.target for one in program.graph_signature.input_specs if one.kind != InputKind.USER_INPUT]
    return {name: held[name].detach().clone().contiguous() for name in used if name is not None}


def is_check_node(node: fx.Node) -> bool:
    """Whether a node only checks what export assumed."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in CHECK_OPERATORS


def operator_name(target: Any) -> str:
    """An operator as NAME.OVERLOAD, or a word of arithmetic on sizes."""
    if (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace == "aten"
        and target._opname.removesuffix("_") in ALLOWED_OPERATORS
    ):
        return f"{target._opname}.{target._overloadname}"
    for name, function in SIZE_ARITHMETIC.items():
        if target is function:
            return name
    raise ValueError(f"the model uses {target}, which a bundle cannot hold: only common operators of PyTorch's own are")


def encode_argument(value: Any, node_indices: Mapping[fx.Node, int]) -> Any:
    """An argument as JSON."""
    if isinstance(value, fx.Node):
        return {"step": node_indices[value]}
    if isinstance(value, list | tuple):
        return [encode_argument(one, node_indices) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, name in TORCH_TYPE_NAMES.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise ValueError(f"the model gives an operator {value!r}, which a bundle cannot hold")


class Program:
    """A function of pictures that does the steps of a bundle."""

    def __init__(self, instructions: list[Instruction], last_uses: list[list[int]]) -> None:
        """`last_uses`: for each step the numbers of those whose results are of no use after it."""
        self.instructions = instructions
        self.last_uses = last_uses

    def __call__(self, pictures: Tensor) -> Any:
        """What the last step gives: scores and features."""
        found: list[Any] = []
        for step, over in zip(self.instructions, self.last_uses, strict=True):
            found.append(step(found, pictures))
            for number in over:
                found[number] = None
        return found[-1]


def load_program(instructions: Any, weights: Mapping[str, Tensor]) -> Program:
    """The program of a bundle; refuses what is not a list of known operators on what came before."""
    try:
        made = [build_instruction(step, number, weights) for number, step in enumerate(instructions)]
        uses = [sorted(set(find_result_indices(step))) for step in instructions]
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"the bundle's program is not one ({type(error).__name__}: {error})") from None
    if not instructions or "output" not in instructions[-1] or sum("input" in step for step in instructions) != 1:
        raise ValueError("the bundle's program does not lead from pictures to an output")
    for number, used in enumerate(uses):
        if used and not 0 <= used[0] <= used[-1] < number:
            raise ValueError(f"step {number} of the bundle's program takes what is not there yet")
    last = {one: number for number, used in enumerate(uses) for one in used}
    return Program(
        made, [[one for one, number in last.items() if number == place] for place in range(len(instructions))]
    )


def build_instruction(instruction: dict[str, Any], index: int, weights: Mapping[str, Tensor]) -> Instruction:
    """One step, ready to be done on the results of those before it."""
    if "input" in instruction:
        return lambda found, pictures: pictures
    if "weight" in instruction:
        weight = weights[instruction["weight"]]
        return lambda found, pictures: weight
    if "output" in instruction:
        ends = [*decode_argument(instruction["output"])]
        return lambda found, pictures: tuple(resolve_argument(end, found) for end in ends)
    function, taken = lookup_operator(instruction["do"]), decode_argument(instruction["take"])
    named = {str(name): decode_argument(value) for name, value in instruction["named"].items()}
    return lambda found, pictures: function(
        *[resolve_argument(one, found) for one in taken],
        **{name: resolve_argument(one, found) for name, one in named.items()},
    )


@dataclass(frozen=True)
class ResultRef:
    """What the step of a number gave."""

    index: int


def resolve_argument(value: Any, results: list[Any]) -> Any:
    """An argument with the results it stands for."""
    if isinstance(value, ResultRef):
        return results[value.index]
    return [resolve_argument(one, results) for one in value] if isinstance(value, list) else value


def find_result_indices(value: Any) -> Iterator[int]:
    """The numbers of the steps whose results a step takes."""
    if isinstance(value, dict):
        if value.keys() == {"step"}:
            yield value["step"]
        else:
            for one in value.values():
                yield from find_result_indices(one)
    elif isinstance(value, list):
        for one in value:
            yield from find_result_indices(one)


def lookup_operator(name: str) -> Callable[..., Any]:
    """The operator of a name."""
    if name in SIZE_ARITHMETIC:
        return partial(apply_size_arithmetic, name)
    base, _, overload = name.partition(".")
    if base.removesuffix("_") not in ALLOWED_OPERATORS:
        raise ValueError(f"the bundle's program asks for the operator {name!r}, which no bundle of this version holds")
    found: Any = getattr(getattr(torch.ops.aten, base), overload)
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"the bundle's program asks for the operator {name!r}, which there is not")
    return found


def apply_size_arithmetic(name: str, *values: Any) -> Any:
    """Arithmetic on sizes, which stay sizes; or one of several results."""
    if name == "getitem":
        results, place = values
        if not isinstance(results, list | tuple) or not isinstance(place, int):
            raise ValueError("the bundle's program takes a part of what has none")
        return results[place]
    if not all(isinstance(value, int | float) for value in values):
        raise ValueError(f"the bundle's program does {name} with what is no number")
    found = SIZE_ARITHMETIC[name](*values)
    if abs(found) > MAX_COMPUTED_SIZE:
        raise ValueError(f"the bundle's program comes to a size of over {MAX_COMPUTED_SIZE}")
    return found


def decode_argument(value: Any) -> Any:
    """An argument from JSON."""
    if isinstance(value, list):
        return [decode_argument(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(kind, held)] = value.items()
    if kind == "step":
        if not isinstance(held, int) or isinstance(held, bool):
            raise ValueError(f"the bundle's program names step {held!r}")
        return ResultRef(held)
    if kind == "device":
        return torch.device("cpu") if held == "cpu" else torch.device(held)
    found = getattr(torch, held)
    if kind not in TORCH_TYPE_NAMES.values() or TORCH_TYPE_NAMES.get(type(found)) != kind:
        raise ValueError(f"the bundle's program gives {held!r} as a {kind}")
    return found
