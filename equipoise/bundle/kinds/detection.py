"""How well a detector finds boxes, and the score from which a box counts."""

from msgspec import Struct

from equipoise.bundle.kinds.regression import Share


class DetectionEvaluation(Struct, frozen=True, kw_only=True, tag_field="type", tag="detection"):
    """Average precision of a detector on the test split, and the score from which its boxes count."""

    average_precision: Share
    """COCO's mAP: mean average precision over overlaps of 0.50 to 0.95"""
    average_precision_50: Share
    """mean average precision at an overlap of 0.50"""
    by_class: dict[str, Share]
    """average precision of each class that has boxes, over overlaps of 0.50 to 0.95"""
    threshold: Share
    """score from which a box counts: the one with the best F1 on the reference split, at an overlap of 0.50"""
    precision: Share
    """share of the boxes from that score on that are right, at an overlap of 0.50"""
    recall: Share
    """share of the labelled boxes that are found with such a score, at an overlap of 0.50"""
