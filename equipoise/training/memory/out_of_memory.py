"""Errors of an allocation that failed: on a GPU torch has a class for them, on a CPU none."""

from collections.abc import Callable

import torch

CPU_SENTENCES = "can't allocate memory", "could not create a primitive"
"""of torch's allocator and of oneDNN"""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory could not be allocated."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sentence in str(error) for sentence in CPU_SENTENCES)


def runs_out_of_memory(function: Callable[[], None]) -> bool:
    """Call a function, and return whether memory could not be allocated in it."""
    try:
        function()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return True
    return False
