"""Lines of code that read a value from a GPU, for which the launching thread waits until the device has computed it."""

import sys
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from equipoise.profiling.sync_points import SyncWatch, find_user_line
from equipoise.workloads.batch import list_tensors

READING_OPERATIONS = {
    torch.ops.aten._local_scalar_dense: "item",
    torch.ops.aten.nonzero: "nonzero",
    torch.ops.aten._to_copy: "cpu",
}
"""operations that end with a value in main memory, and what users call; `_to_copy` only from a GPU to a CPU"""


class DeviceReads(TorchDispatchMode):
    """Mode in which reads from a device are noted beside collective calls; each operation takes longer in it."""

    def __init__(self, sync_watch: SyncWatch, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sync_watch, self.device_type = sync_watch, device_type

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and note the line that reads from the device by it."""
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        name = READING_OPERATIONS.get(func.overloadpacket)
        if name and self._is_read(args, result) and (place := find_user_line(sys._getframe(1), name)):
            self.sync_watch.add_call(place, start)
        return result

    def _is_read(self, arguments: tuple[Any, ...], result: Any) -> bool:
        is_on_device = any(tensor.device.type == self.device_type for tensor in list_tensors(arguments))
        stays = isinstance(result, Tensor) and result.device.type == self.device_type
        return is_on_device and (not stays or self.device_type == "cpu")
