"""Graph of a model's layers, with the places at which a pipeline can cut it."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.workloads.batch import Batch

CONTAINERS = (nn.Sequential, nn.ModuleList)
FACTORIES = (torch.arange, torch.zeros, torch.ones, torch.full, torch.empty, torch.linspace)
"""functions that torch.fx does not follow by itself, as they take sizes rather than tensors"""


class BlockTracer(fx.Tracer):
    """Tracer that takes the children of a model's containers as they are, whatever they compute."""

    proxy_buffer_attributes = True

    def __init__(self) -> None:
        super().__init__(autowrap_functions=FACTORIES)
        self._autowrap_search.append(torch)  # else only functions that a module imported by name are followed

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether the trace keeps the call of a module; it follows containers, and what has some in it."""
        if isinstance(m, CONTAINERS):
            return False
        parent = self.root.get_submodule(module_qualified_name.rpartition(".")[0])
        is_block = isinstance(parent, CONTAINERS) or super().is_leaf_module(m, module_qualified_name)
        return is_block or not any(isinstance(part, CONTAINERS) for part in m.modules())


class ModelTrace:
    """Graphs of a model in training and in evaluation mode, which compute the same layers in the same order."""

    def __init__(self, model: nn.Module, inputs: Batch) -> None:
        """Trace a model as these inputs call it; refuse one whose Python code depends on its inputs."""
        self.model = model
        was_training = model.training
        state = torch.get_rng_state()
        self.train_graph = trace_graph(model.train(), inputs)
        self.eval_graph = trace_graph(model.eval(), inputs)
        model.train(was_training)
        if not torch.equal(torch.get_rng_state(), state):
            raise build_refusal("its forward method draws random numbers that no tensor leads to")
        self.nodes = list_compute_nodes(self.train_graph)
        self.eval_nodes = list_compute_nodes(self.eval_graph)
        if [node.target for node in self.nodes] != [node.target for node in self.eval_nodes]:
            raise build_refusal("it calls other layers in evaluation mode than in training mode")
        self.input_names = [str(node.target) for node in self.train_graph.nodes if node.op == "placeholder"]

    def list_cuts(self) -> list[int]:
        """Return the numbers of nodes before which a cut leaves exactly one value to hand on, with that of inputs."""
        return [index for index in range(1, len(self.nodes)) if self.find_cut_value(index) is not None]

    def find_cut_value(self, index: int) -> fx.Node | None:
        """Return the node whose value alone is needed by the nodes from `index` on; None if there are several."""
        return find_single_value(self.nodes, index, self.model)

    def find_cut_source(self, index: int) -> int:
        """Return the number of the node whose value is handed on at a possible cut."""
        value = self.find_cut_value(index)
        if value is None:
            raise ValueError(f"the model cannot be cut before node {index}")
        return self.nodes.index(value)

    def list_users_of_weights(self) -> list[set[str]]:
        """Return the names of the weights and buffers that each node uses."""
        return [set(list_used_weights(node, self.model)) for node in self.nodes]

    def list_gradients(self) -> list[bool]:
        """Return whether the value of each node depends on a trainable weight."""
        depends: dict[fx.Node, bool] = {}
        for node in self.nodes:
            weights = (find_attribute(self.model, name) for name in list_used_weights(node, self.model))
            is_trained = any(weight.requires_grad for weight in weights)
            depends[node] = is_trained or any(depends.get(value, False) for value in node.all_input_nodes)
        return list(depends.values())


def build_refusal(reason: str) -> EquipoiseError:
    """Return the error of a model that a pipeline cannot cut."""
    return EquipoiseError(
        "sharding-unusable",
        f"cannot cut the model for --sharding pipeline: {reason}",
        "use --sharding full or none, or write the model as a sequence of blocks",
    )


def trace_graph(model: nn.Module, inputs: Batch) -> fx.Graph:
    """Return the graph of a model as it is called with these inputs, in the mode that the model is in."""
    try:
        given_names = bind_inputs(model, inputs)
        optional = {
            name: parameter.default
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if name not in given_names and parameter.default is not parameter.empty
        }
        graph = BlockTracer().trace(model, concrete_args=optional or None)
    except Exception as error:  # whatever the model's own code raises for values that are not there yet
        raise build_refusal(f"torch.fx cannot trace it ({first_error_line(error)})") from error
    for node in graph.nodes:
        node.meta.pop("is_wrapped", None)  # else modules of this graph would be wrapped too, and break later traces
    return graph


def bind_inputs(model: nn.Module, inputs: Batch) -> dict[str, Any]:
    """Return a batch of inputs by the names of the model's arguments."""
    signature = inspect.signature(model.forward)
    if isinstance(inputs, tuple):
        return signature.bind(*inputs).arguments
    return (signature.bind(**inputs) if isinstance(inputs, Mapping) else signature.bind(inputs)).arguments


def list_compute_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes of a graph that compute something."""
    checks = torch._assert, getattr(fx._symbolic_trace, "_assert_is_none", None)  # of arguments left at their defaults
    return [node for node in graph.nodes if node.op.startswith("call_") and node.target not in checks]


def find_single_value(nodes: list[fx.Node], index: int, model: nn.Module) -> fx.Node | None:
    """Return the only value of the nodes before `index` that those from it on need, or None.

    Inputs of the model and its weights do not count, as every stage can have them; a layer with running statistics
    that is called on both sides would have two of them.
    """
    before, after = (
        set(nodes[:index]),
        {*nodes[index:], *(node for node in nodes[0].graph.nodes if node.op == "output")},
    )
    values = {node for node in before if not after.isdisjoint(node.users)}
    called = {node.target for node in before if node.op == "call_module"}
    for node in nodes[index:]:
        if node.op == "call_module" and node.target in called and has_buffers(model, str(node.target)):
            return None
    return values.pop() if len(values) == 1 else None


def has_buffers(model: nn.Module, path: str) -> bool:
    """Return whether a layer of a model has buffers."""
    return any(True for _ in model.get_submodule(path).buffers())


def list_used_weights(node: fx.Node, model: nn.Module) -> Iterator[str]:
    """Yield the names of the weights and buffers that a node uses, as the model's `state_dict` has them."""
    for value in node.all_input_nodes:
        if value.op == "get_attr":
            yield str(value.target)
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        for name, _ in (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ):
            yield f"{node.target}.{name}"


def find_attribute(model: nn.Module, path: str) -> Tensor:
    """Return a weight or buffer of a model by its name."""
    module, _, name = path.rpartition(".")
    value: Tensor = getattr(model.get_submodule(module), name)
    return value


def build_stage_module(model: nn.Module, nodes: list[fx.Node], received: fx.Node | None, result: Any) -> fx.GraphModule:
    """Return a module that computes these nodes, from the value received and the model's inputs by their names.

    Its layers and weights are those of the model, not copies.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    if received is not None:
        copies[received] = graph.placeholder("received")
    inputs = {value for node in nodes for value in node.all_input_nodes if value.op == "placeholder"}
    for value in sorted(inputs, key=lambda node: str(node.target)):
        copies[value] = graph.placeholder(str(value.target))

    def copy_value(value: fx.Node) -> fx.Node:
        if value not in copies:  # a weight
            copies[value] = graph.get_attr(str(value.target))
        return copies[value]

    for node in nodes:
        copies[node] = graph.node_copy(node, copy_value)
    graph.output(fx.map_arg(result, copy_value))
    return fx.GraphModule(model, graph)


def list_stage_inputs(stage: fx.GraphModule) -> list[str]:
    """Return the names of the model's inputs that a stage takes after the value that it receives."""
    names = (str(node.target) for node in stage.graph.nodes if node.op == "placeholder")
    return [name for name in names if name != "received"]


def find_result(graph: fx.Graph) -> Any:
    """Return what a graph returns, made of its nodes."""
    output: fx.Node = next(iter(reversed(graph.nodes)))
    return output.args[0]
