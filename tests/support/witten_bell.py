"""Witten-Bell language model of characters, without torch: what a network that learns must come close to.

The probability of a character after a context of n characters mixes its share in the training text with the probability
after the last n - 1 of them: (count + followers * shorter) / (total + followers), where `followers` is how many
different characters were seen after the context (Witten and Bell 1991). Below order 0 all characters are as likely.
"""

import math
from collections import Counter, defaultdict


def count_followers(text, order):
    """Return for each context of `order` characters how often each character follows it."""
    followers = defaultdict(Counter)
    for position in range(order, len(text)):
        followers[text[position - order : position]][text[position]] += 1
    return followers


def witten_bell_nats(training_text, text, max_order, alphabet_size):
    """Return the mean nats per character of `text` for each order from 0 to `max_order`."""
    counts = [count_followers(training_text, order) for order in range(max_order + 1)]
    totals = [{context: sum(after.values()) for context, after in table.items()} for table in counts]
    sums = [0.0] * (max_order + 1)
    for position in range(max_order, len(text)):
        probability = 1 / alphabet_size
        for order, table in enumerate(counts):
            context = text[position - order : position]
            if context in table:
                after = table[context]
                probability = (after[text[position]] + len(after) * probability) / (totals[order][context] + len(after))
            sums[order] -= math.log(probability)
    return [total / (len(text) - max_order) for total in sums]
