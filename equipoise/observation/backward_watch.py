"""Callbacks at the start and the end of a backward pass that somebody else calls.

PyTorch has no public hook for the end of a backward pass. Its engine runs callbacks there, in the order in which they
were queued, and DistributedDataParallel waits for the gradient exchange in such a callback, which it queues when the
last gradients arrive. A callback that is queued when the pass starts therefore runs once this worker has computed all
of its gradients, and one that is queued by the first runs after the exchange. The private parts of PyTorch that this
takes are used in this module alone, and `tests/unit/observation/test_backward_watch.py` tests what it relies on.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


class BackwardWatch:
    """Watch over backward passes: calls its functions once in each pass that reaches a watched output.

    `on_start` is called when the pass starts, `on_computed` when this worker has computed its gradients, and `on_done`
    when the pass ends, which is after the exchange of gradients with other workers. Without an exchange, `on_computed`
    is None.
    """

    def __init__(
        self, on_start: Callable[[], None], on_computed: Callable[[], None] | None, on_done: Callable[[], None]
    ) -> None:
        self.on_start, self.on_computed, self.on_done = on_start, on_computed, on_done
        self.last_pass_id: int | None = None
        self.tensor_hooks = {-1: self._handle_gradient}

    def watch_output(self, output: Any) -> None:
        """Watch the next backward passes through an output of a model, or through a loss."""
        for tensor in (output,) if isinstance(output, Tensor) else iterate_tensors(output):
            if tensor.grad_fn is None:
                continue
            if tensor._backward_hooks is None:  # what `register_hook` does, without a handle: 8 of its 12 microseconds
                tensor._backward_hooks = OrderedDict(self.tensor_hooks)
                tensor.grad_fn._register_hook_dict(tensor)
            else:
                tensor.register_hook(self._handle_gradient)

    def _handle_gradient(self, _: Tensor) -> None:
        """Queue the callbacks when the first gradient of a pass arrives."""
        pass_id = current_backward_id()
        if pass_id is None or pass_id == self.last_pass_id:
            return
        self.last_pass_id = pass_id
        self.on_start()
        queue_backward_callback(self._handle_computed if self.on_computed else self.on_done)

    def _handle_computed(self) -> None:
        if self.on_computed:
            self.on_computed()
        queue_backward_callback(self.on_done)


def current_backward_id() -> int | None:
    """Return the number of the backward pass that this thread is in; None outside of one."""
    number = torch._C._current_graph_task_id()
    return None if number == -1 else number


def queue_backward_callback(callback: Callable[[], None]) -> None:
    """Let the engine call a function at the end of the backward pass that this thread is in."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def iterate_tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors in an output: itself, or in its lists, tuples, dictionaries and dataclasses."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from iterate_tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from iterate_tensors(value)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from iterate_tensors(getattr(output, field.name))
