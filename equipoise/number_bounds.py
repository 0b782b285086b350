"""Types of numbers with bounds, for the fields of what is decoded from JSON and for tables."""

import sys
from typing import Annotated

from msgspec import Meta

MAX_COUNT = 10**12  # bound of every count: larger than any real one, small enough for arithmetic
MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-12, 1e6
"""bounds of every learning rate: wider than any with which a model learns, narrow enough for products in fp32"""

Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
NonNegativeCount = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
FiniteNumber = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
NonNegativeNumber = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
PositiveNumber = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
LearningRate = Annotated[float, Meta(ge=MIN_LEARNING_RATE, le=MAX_LEARNING_RATE)]
