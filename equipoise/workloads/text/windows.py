"""Windows of text: the examples of a language model."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def count_windows(num_tokens: int, length: int) -> int:
    """Return the number of windows that do not overlap, each with a next token for its last one."""
    return max(0, (num_tokens - 1) // length)


def cut_windows(tokens: NDArray[np.int64], length: int) -> tuple[Tensor, Tensor]:
    """Cut a text into windows; return the tokens of each, and the token that follows each of them.

    Both are int64 (windows, length), and views of one tensor: targets take no memory of their own.
    """
    num_windows = count_windows(len(tokens), length)
    text = torch.from_numpy(tokens)
    covered = num_windows * length
    return text[:covered].view(num_windows, length), text[1 : covered + 1].view(num_windows, length)
