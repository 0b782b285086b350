"""States of the processes of a run as one state."""

import torch

from equipoise.compression.kept_errors import PART_PREFIX, process_error_name


def join_states(states):
    """Return the state that one process would have from those of all processes, by rank."""
    joined, parts = {}, {}
    for rank, state in enumerate(states):
        of_process = process_error_name(rank, len(states), "")
        for name, value in state.items():
            if name.startswith(PART_PREFIX):
                parts[int(name.removeprefix(PART_PREFIX))] = value
            elif name.startswith(of_process):
                name = name.replace(of_process, process_error_name(0, 1, ""))
                joined[name] = joined.get(name, 0) + value
            else:
                joined[name] = value
    if parts:
        joined[f"{PART_PREFIX}0"] = torch.cat([parts[first] for first in sorted(parts)])
    return joined


def select_shared(state):
    """Return what is the same on all processes of a state."""
    return {name: value for name, value in state.items() if not name.startswith("error.")}
