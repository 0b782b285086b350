"""Types of numbers with bounds, for the fields of what is decoded from JSON and for tables."""

import sys
from typing import Annotated

from msgspec import Meta

MAX_COUNT = 10**12  # bound of every count: larger than any real one, small enough for arithmetic

Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
NonNegativeCount = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
FiniteNumber = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
NonNegativeNumber = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
PositiveNumber = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
