"""Arrays of a reference profile for reference.npz, or the reason why a reference cannot be used."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.reference.profile import ARRAY_PREFIX, ReferenceProfile
from equipoise.errors import EquipoiseError


def collect_profile_arrays(build_profile: Callable[[], ReferenceProfile]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the profile that a function builds; where the reference is refused, only the reason why."""
    try:
        return build_profile().to_arrays()
    except EquipoiseError as error:
        return {f"{ARRAY_PREFIX}why not": np.array(str(error))}
