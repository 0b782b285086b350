"""Interpreter of a bundle's program: the operations that `graph` has written as JSON, run one by one.

Loading a program runs no code of its author: it may only name operators of `operators` and their arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equipoise.bundle.operators import lookup_operator
from equipoise.bundle.program_input import ProgramInput, require_distinct_inputs
from equipoise.errors import EquipoiseError

TORCH_TYPE_NAMES: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}
SPECIAL_NUMBERS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}  # which JSON does not have
Inputs = Mapping[int | str, Tensor]
Instruction = Callable[[list[Any], Inputs], Any]


class Program:
    """Function of tensors that executes the instructions of a bundle.

    Attributes:
        inputs: tensors that it takes, by position and by keyword
    """

    def __init__(self, instructions: list[Instruction], last_uses: list[list[int]], inputs: list[ProgramInput]) -> None:
        """Keep the instructions; `last_uses` lists, for each, the results that no later instruction needs."""
        self.instructions = instructions
        self.last_uses = last_uses
        self.inputs = inputs

    def __call__(self, *arguments: Tensor, **keywords: Tensor) -> Any:
        """Return the model's outputs as a tuple, or by their names if the model returns a dictionary."""
        values: Inputs = dict([*enumerate(arguments), *keywords.items()])
        if values.keys() != {program_input.key for program_input in self.inputs}:
            raise EquipoiseError(
                "inputs-invalid",
                f"cannot run the program: it takes the inputs {[value.key for value in self.inputs]}, got {[*values]}",
            )
        for program_input in self.inputs:
            program_input.require_fit(values[program_input.key])
        results: list[Any] = []
        for instruction, unneeded in zip(self.instructions, self.last_uses, strict=True):
            results.append(instruction(results, values))
            for index in unneeded:
                results[index] = None
        return results[-1]


def load_program(instructions: Any, weights: Mapping[str, Tensor]) -> Program:
    """Build a bundle's program; refuse instructions that are not allowed operators on earlier results."""
    try:
        built = [build_instruction(instruction, weights) for instruction in instructions]
        uses = [sorted(set(find_result_indices(instruction))) for instruction in instructions]
        inputs = [ProgramInput.from_json(instruction) for instruction in instructions if "input" in instruction]
    except EquipoiseError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: {type(error).__name__}: {error}", "publish it again"
        ) from None
    require_distinct_inputs(inputs if instructions and "output" in instructions[-1] else [])
    for index, used in enumerate(uses):
        if used and not 0 <= used[0] <= used[-1] < index:
            raise EquipoiseError(
                "bundle-invalid",
                f"cannot load the bundle's program: step {index} uses a result that is not computed before it",
            )
    last_use = {result: index for index, used in enumerate(uses) for result in used}
    unneeded: list[list[int]] = [[] for _ in instructions]
    for result, index in last_use.items():
        unneeded[index].append(result)
    return Program(built, unneeded, inputs)


def build_instruction(instruction: dict[str, Any], weights: Mapping[str, Tensor]) -> Instruction:
    """Return one instruction as a function of the earlier results and the inputs."""
    if "input" in instruction:
        key = ProgramInput.from_json(instruction).key
        return lambda results, inputs: inputs[key]
    if "weight" in instruction:
        weight = weights[instruction["weight"]]
        return lambda results, inputs: weight
    if "output" in instruction:
        return build_output([*decode_argument(instruction["output"])], instruction.get("names"))
    function, arguments = lookup_operator(instruction["do"]), decode_argument(instruction["take"])
    keywords = {str(name): decode_argument(value) for name, value in instruction["named"].items()}
    return lambda results, inputs: function(
        *[resolve_argument(value, results) for value in arguments],
        **{name: resolve_argument(value, results) for name, value in keywords.items()},
    )


def build_output(outputs: list[Any], names: list[str] | None) -> Instruction:
    """Return the last instruction, which collects the outputs in a tuple, or in a dictionary if they have names."""
    if names is None:
        return lambda results, inputs: tuple(resolve_argument(output, results) for output in outputs)
    named = dict(zip(names, outputs, strict=True))
    return lambda results, inputs: {name: resolve_argument(output, results) for name, output in named.items()}


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
    if kind == "number":
        return SPECIAL_NUMBERS[content]
    if kind == "device":
        return torch.device("cpu") if content == "cpu" else torch.device(content)
    constant = getattr(torch, content)
    if kind not in TORCH_TYPE_NAMES.values() or TORCH_TYPE_NAMES.get(type(constant)) != kind:
        raise EquipoiseError("bundle-invalid", f"cannot load the bundle's program: {content!r} is not a {kind}")
    return constant
