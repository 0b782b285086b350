"""Exchange that keeps nothing from one lap to the next, besides the model and the optimizer."""

from collections.abc import Mapping

from torch import Tensor


class ExchangeWithoutState:
    """Parts of a checkpoint of asynchronous steps: all pushes are applied when a lap ends."""

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return what the next update depends on besides model and optimizer: nothing at the end of a lap."""
        return {}

    def load_state_dict(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the state from the tensors of `state_dict`."""

    def list_errors(self) -> dict[str, Tensor]:
        """Return what only this process keeps: nothing, as pushes leave nothing out."""
        return {}

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint."""
