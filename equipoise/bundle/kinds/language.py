"""How well a language model predicts what comes next, in nats."""

from msgspec import Struct

from equipoise.number_bounds import Count, NonNegativeNumber


class LanguageEvaluation(Struct, frozen=True, kw_only=True, tag_field="type", tag="language"):
    """Cross-entropy of a language model on the test split."""

    nats_per_token: NonNegativeNumber
    """mean negative logarithm of the probability of what came next, in nats"""
    tokens: Count
    """tokens predicted in the test split"""
