"""The parameter whose gradient is computed last in a backward pass, and a hook on it alone.

The order of gradients is that of the graph, which most loops build anew each time in the same way. So hooks on all
parameters find the last one in a first pass, and one hook follows the passes after it. What follows the last gradient
in a backward pass is exchange: DistributedDataParallel copies and sends its last bucket after this hook has run, which
`tests/unit/observation/test_last_gradient.py` tests.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class LastGradientWatch:
    """Watch over gradients: `on_gradient` is called at each one until the last is known, then `on_last` at that one.

    Where the graph differs from pass to pass, it is never known: `has_fixed_graph` says whether it may be. Passes that
    are not of interest are not watched.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        on_gradient: Callable[[], None],
        on_last: Callable[[Tensor], None],
        has_fixed_graph: bool,
    ) -> None:
        self.parameters, self.on_gradient, self.on_last = parameters, on_gradient, on_last
        self.has_fixed_graph = has_fixed_graph
        self.latest: Tensor | None = None
        self.last: Tensor | None = None
        """parameter whose gradient comes last, once it is known"""
        self.handles: list[RemovableHandle] = []
        self.watch()

    @property
    def is_known(self) -> bool:
        """Return whether the parameter whose gradient comes last is known."""
        return self.last is not None

    def watch(self) -> None:
        """Watch backward passes from now on, if they are not watched already."""
        if self.handles:
            return
        if self.last is not None:
            self.handles = [self.last.register_post_accumulate_grad_hook(self.on_last)]
        else:
            self.handles = [
                p.register_post_accumulate_grad_hook(self._note_gradient) for p in self.parameters if p.requires_grad
            ]

    def end_pass(self) -> None:
        """Keep the hook on the last gradient alone, once a backward pass has shown which one it is."""
        if self.latest is not None and self.has_fixed_graph and self.last is None:
            self.remove()
            self.last = self.latest
            self.watch()
        self.latest = None

    def forget_order(self) -> None:
        """Watch all gradients from now on, since a backward pass did not reach the one that was the last."""
        self.remove()
        self.has_fixed_graph, self.last = False, None
        self.watch()

    def remove(self) -> None:
        """Remove the hooks from the parameters."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def _note_gradient(self, parameter: Tensor) -> None:
        self.latest = parameter
        self.on_gradient()
