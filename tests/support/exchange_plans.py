"""Plan documents with ways of exchange, whose times follow from a few round numbers by closed forms."""

import numpy as np

from equipoise.planning.document import PlanEntry
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, ExchangeVerdict, SwitchesAt
from tests.support.plan_documents import build_document, build_interval, build_option

GRADIENT_BYTES, COMPUTE_SECONDS, STEPS, WORKERS = 11.1e6, 0.05, 400, 4
OPTIONS = {
    "": (1, 1.0, 0.0, 1.0),
    "bf16": (1, 0.5, 0.002, 1.01),
    "local:16": (16, 1.0, 0.0, 1.3),
    "local:64/bf16": (64, 0.5, 0.002, 2.3),
}
"""steps from one exchange to the next, share of the bytes, seconds of encoding, and examples ratio of each way"""
RATES = tuple(float(rate) for rate in np.geomspace(1e7, 1e11, 25))
DELAYS = tuple(float(delay) for delay in np.geomspace(1e-5, 1e-1, 17))
OWN_RATE, OWN_DELAY = 2e8, 1e-4


def compute_target_seconds(name, rate, delay):
    """Return the seconds to the target with one way of exchange over rings at a rate and a delay."""
    interval, share, encode, ratio = OPTIONS[name]
    hops = 2 * (WORKERS - 1)
    exchange = hops * (delay + 8 * share * GRADIENT_BYTES / WORKERS / rate) + encode
    return STEPS * ratio * (COMPUTE_SECONDS + exchange / interval)


def build_exchange_map(**changes):
    """Build the map of the best way of exchange by its closed forms."""
    names = tuple(OPTIONS)
    seconds = np.array([[[compute_target_seconds(name, x, y) for x in RATES] for y in DELAYS] for name in names])
    fields = {
        "bits_per_second": RATES,
        "delay_seconds": DELAYS,
        "options": names,
        "best": tuple(map(tuple, seconds.argmin(axis=0).tolist())),
        "exact_seconds": tuple(map(tuple, seconds[0].tolist())),
        "speedup": tuple(map(tuple, (seconds[0] / seconds.min(axis=0)).tolist())),
        "own_bits_per_second": OWN_RATE,
        "own_delay_seconds": OWN_DELAY,
    }
    return ExchangeMap(**fields | changes)


def build_verdict(form="local:16", **changes):
    """Build a verdict on a way of exchange that is used, from the times of its closed form."""
    seconds, exact = (compute_target_seconds(name, OWN_RATE, OWN_DELAY) for name in (form, ""))
    interval, share, encode, ratio = OPTIONS[form]
    fields = {
        "exchange": form,
        "nodes": 2,
        "workers": WORKERS,
        "batch": 32,
        "lr": 0.05,
        "step_seconds": seconds / STEPS / ratio,
        "sent_bytes": 2 * (WORKERS - 1) / WORKERS * share * GRADIENT_BYTES / interval,
        "encode_seconds": encode / interval,
        "examples_ratio": build_interval(ratio, 0.1),
        "seconds": build_interval(seconds, 0.15),
        "max_speedup": exact / seconds * ratio,
        "speedup": build_interval(exact / seconds, 0.2),
        "verdict": "use",
        "why": f"{form} needs {ratio:g} times the examples and is {exact / seconds:.2g} times sooner",
        "measured": True,
    }
    return ExchangeVerdict(**fields | changes)


def list_verdicts():
    """Return a verdict of each kind, the soonest first."""
    nothing = {"examples_ratio": None, "seconds": None, "speedup": None, "measured": False}
    return (
        build_verdict(),
        build_verdict("local:64/bf16", verdict="slower", measured=False, why="it needs 2.3 times the examples"),
        build_verdict("bf16", **nothing, verdict="unknown", why="no trial reached the target within the budget"),
        build_verdict(
            "bf16",
            **nothing | {"exchange": "int8", "encode_seconds": 0.0421, "sent_bytes": 4.2e6, "max_speedup": 1.02},
            verdict="no gain",
            why="int8 would be at most 2 % sooner even if it cost no examples",
        ),
    )


def build_exchange_document(**parts):
    """Build a plan that exchanges every 16 steps, with what it says of other ways of exchange."""
    seconds = compute_target_seconds("local:16", OWN_RATE, OWN_DELAY)
    plan = build_option(4, 32, seconds, PlanEntry, nodes=2, why="it is the fastest", exchange="local:16")
    fields = {
        "plan": plan,
        "exchanges": list_verdicts(),
        "switches_at": SwitchesAt(bits_per_second=2.6e10, delay_seconds=None),
        "exchange_map": build_exchange_map(),
    }
    return build_document(**fields | parts)
