"""What limits the speed of a plan, in words."""

from equipoise.planning.document import Bottleneck

BOTTLENECK_TEXT: dict[Bottleneck, str] = {
    "compute": "computing takes most of a step: faster workers help, or more of them until the exchange dominates",
    "exchange": "the exchange takes most of a step: a larger batch or a faster network helps",
    "noise": "most of each further example in the batch is wasted: a smaller batch learns more per example",
    "data loading": (
        "steps wait for batches: more readers (--threads), smaller files or cheaper augmentation help, faster workers"
        " and networks do not"
    ),
    "unknown": "step times of one worker would tell computing from the exchange, and which of the two to shorten",
}
