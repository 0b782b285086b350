"""False-alarm rate that a reference of few images supports, and how many images would support the one asked for.

Charts compare requests with means of the reference, which are off by chance: by 1 / sqrt(n) standard deviations for n
images. Thresholds allow for that on average over references, not for the one reference at hand. The logarithm of the
run length of a CUSUM chart falls in proportion to such an offset and to the height of its threshold, which grows with
the logarithm of the run length asked for (Siegmund, Sequential Analysis, 1985). So with a standard normal z

    log(asked / realised) = z * LOG_RUN_LENGTH_SPREAD * log(asked / MIN_STREAM_IMAGES) / sqrt(n)
"""

import math

from scipy.special import ndtri

from equipoise.drift.charts.cusum import MIN_STREAM_IMAGES
from equipoise.drift.reference.false_alarms import FalseAlarmCheck
from equipoise.formatting import format_rounded

DEFAULT_REQUESTS_PER_FALSE_ALARM = 100_000.0  # of a service that is not told another number
LOG_RUN_LENGTH_SPREAD = 1.5
"""measured on rendered vending images, with streams drawn from 10,000 that are not in the reference: log(asked /
realised) has standard deviations of 0.52, 0.27, 0.21, 0.23, 0.06 at 2,000 requests asked, over 20, 8, 5, 5, 5
references of 120, 250, 500, 1,000, 2,000 images; that is 1.65, 1.24, 1.37, 2.11, 0.83"""
UNLUCKY_Z = float(ndtri(0.9))  # the rate that nine in ten references keep
MAX_SHORTFALL_FACTOR = 3.0  # false alarms that come three times as often as asked for are worth a warning
CLOSE_FACTOR = 1.5  # a rate within this factor of the one asked for is as good as it


def describe_small_reference(
    image_count: int,
    check: FalseAlarmCheck | None,
    run_length: float = DEFAULT_REQUESTS_PER_FALSE_ALARM,
    examples: str = "images",
) -> str | None:
    """Return a sentence on a reference too small for the requested images per false alarm; None if it is not.

    `examples` is what the images are called: rows of a table, texts.
    """
    shortfall = log_shortfall(image_count, check, run_length)
    if shortfall <= math.log(MAX_SHORTFALL_FACTOR):
        return None
    return (
        f"the drift reference has {image_count:,} {examples}, which support about one false alarm in"
        f" {format_rounded(run_length * math.exp(-shortfall))} requests where one in {run_length:,.0f} is asked for;"
        f" about {format_rounded(count_needed_images(image_count, shortfall))} are needed:"
        f" train and publish with more {examples}, of which the reference is a part, or expect that many false alarms"
    )


def describe_false_alarm_rate(
    image_count: int,
    check: FalseAlarmCheck,
    run_length: float = DEFAULT_REQUESTS_PER_FALSE_ALARM,
    examples: str = "images",
) -> str:
    """Return a sentence on the false alarms counted, and on the size of reference that keeps the rate asked for."""
    rate = check.estimate
    needed = count_needed_images(image_count, log_shortfall(image_count, None, run_length), CLOSE_FACTOR)
    return (
        f"false alarms, tried on held-out {examples} with a setting of one in {check.asked:,.0f} requests: one in"
        f" {format_rounded(rate.value)} ({format_rounded(rate.low)} to {format_rounded(rate.high)}); the reference has"
        f" {image_count:,} {examples}, and about {format_rounded(needed)} bring false alarms within a factor of"
        f" {CLOSE_FACTOR:g} of the default setting of one in {run_length:,.0f}"
    )


def log_shortfall(image_count: int, check: FalseAlarmCheck | None, run_length: float) -> float:
    """Return log(asked / realised run length) of an unlucky reference, or the one counted if that is more.

    The count is of streams of few held-out images, whose own means are off too: of an offset between two samples, the
    share held_out / (held_out + image_count) is expected to be that of the reference.
    """
    height = math.log(run_length / MIN_STREAM_IMAGES)
    unlucky = UNLUCKY_Z * LOG_RUN_LENGTH_SPREAD * height / math.sqrt(image_count)
    if check is None:
        return unlucky
    counted = math.log(check.asked / check.images_per_alarm) * check.held_out / (check.held_out + image_count)
    return max(unlucky, counted * height / math.log(check.asked / MIN_STREAM_IMAGES))


def count_needed_images(image_count: int, shortfall: float, factor: float = MAX_SHORTFALL_FACTOR) -> int:
    """Return how many images would bring the shortfall, which falls with the root of their number, to a factor."""
    return math.ceil(image_count * (shortfall / math.log(factor)) ** 2)
