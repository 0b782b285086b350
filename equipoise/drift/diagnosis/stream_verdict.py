"""Compute the verdict on one stream of requests: ok, drift or unknown, with the numbers behind it."""

from datetime import UTC, datetime

import numpy as np

from equipoise.drift.charts.chart_names import CLASS_AND_FEATURE_CHARTS
from equipoise.drift.charts.cusum import MIN_STREAM_IMAGES, smoothed_shares
from equipoise.drift.charts.sums import sum_over_conditions
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.accuracy_estimate import estimate_accuracy
from equipoise.drift.diagnosis.cause import Cause
from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.root_cause import diagnose_window
from equipoise.drift.diagnosis.verdict import (
    AlarmTime,
    BettingEvidence,
    ChartEffect,
    ChartHistory,
    ChartReading,
    CorruptionEffect,
    DriftOnset,
    FalseAlarmRate,
    StreamVerdict,
    VerdictState,
)
from equipoise.drift.diagnosis.window import Window, find_change_step, window_since
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.reference.reference_size import describe_small_reference
from equipoise.proportions import Z_95, wilson_interval
from equipoise.type_aliases import FloatArray


def compute_stream_verdict(detector: StreamDetector) -> StreamVerdict:
    """Return the verdict on a stream."""
    first = find_change_step(detector) if detector.alarm else 0
    window = window_since(detector, first) if detector.observed_images else None
    cause = diagnose_alarm(detector, window)
    state: VerdictState = (
        "drift" if detector.alarm else "ok" if detector.observed_images >= MIN_STREAM_IMAGES else "unknown"
    )
    profile, estimate = detector.profile, None
    shares = window.condition_shares if window else {}
    if window is not None and state != "unknown":
        estimate = estimate_accuracy(window, cause)
    return StreamVerdict(
        kind=profile.schema.kind,
        has_accuracy=profile.schema.has_accuracy,
        state=state,
        why=explain_state(detector, state, cause),
        images=detector.answered_images,
        looked_at=detector.observed_images,
        cause=cause.name if cause else None,
        effects=list_corruption_effects(cause),
        runner_up=find_runner_up(cause),
        since=describe_onset(detector, first) if detector.alarm else None,
        accuracy=estimate or "unknown",
        run_length=detector.run_length,
        verified=describe_false_alarm_check(detector),
        reference_warning=describe_small_reference(
            profile.image_count, profile.verified, detector.run_length, profile.schema.example_name
        ),
        runs=round(float(detector.charts.runs.mean_run_length()[0]), 2),
        evidence=BettingEvidence(value=detector.evidence.log_mean_wealth(), threshold=float(np.log(20))),
        classes=name_counts(profile, window.class_counts) if window else {},
        usual=name_reference_counts(profile),
        conditions=shares,
        condition=most_frequent(shares),
        charts=tuple(describe_charts(detector, window)) if window else (),
    )


def list_corruption_effects(cause: Cause | None) -> tuple[CorruptionEffect, ...]:
    """Return the corruptions behind a cause; none without a cause."""
    return tuple(map(build_corruption_effect, cause.effects)) if cause else ()


def find_runner_up(cause: Cause | None) -> CorruptionEffect | None:
    """Return the corruption that would explain most in place of the last one behind a cause; None if there is none."""
    return build_corruption_effect(cause.runner_up) if cause and cause.runner_up else None


def build_corruption_effect(effect: Effect) -> CorruptionEffect:
    """Return an effect as a verdict reports it."""
    return CorruptionEffect(**{name: getattr(effect, name) for name in CorruptionEffect.__struct_fields__})


def name_counts(profile: ReferenceProfile, counts: FloatArray) -> dict[str, int]:
    """Return the number of images by class name."""
    return dict(zip(profile.class_names, counts.astype(int).tolist(), strict=True))


def name_reference_counts(profile: ReferenceProfile) -> dict[str, int]:
    """Return the number of reference images by the name of their predicted class."""
    return name_counts(profile, sum_over_conditions(profile.baseline.usual.counts, len(profile.class_names)))


def most_frequent(shares: dict[str, float]) -> str | None:
    """Return the name with the largest share; None without names."""
    return max(shares, key=lambda name: shares[name], default=None)


def describe_false_alarm_check(detector: StreamDetector) -> FalseAlarmRate | None:
    """Return how rare false alarms were at publication, counted on held-out images; None if they were not counted."""
    check = detector.profile.verified
    if check is None:
        return None
    estimate = check.estimate
    return FalseAlarmRate(
        asked=check.asked,
        pictures=check.pictures,
        alarms=check.alarms,
        held_out=check.held_out,
        realised=estimate.value,
        low=estimate.low,
        high=estimate.high,
    )


def diagnose_alarm(detector: StreamDetector, window: Window | None) -> Cause | None:
    """Return the cause of an alarm, or None without an alarm."""
    if detector.alarm is None or window is None:
        return None
    values, threshold = detector.values(), detector.threshold()
    first = detector.chart_names.score_chart_count
    return diagnose_window(window, bool((values[first : first + 2] >= threshold).any()))


def explain_state(detector: StreamDetector, state: str, cause: Cause | None) -> str:
    """Explain the verdict in one sentence."""
    examples = detector.profile.schema.example_name
    if state == "unknown":
        return f"{detector.observed_images} {examples} were observed; at least {MIN_STREAM_IMAGES} are needed"
    if cause is None or detector.alarm is None:
        return f"{detector.observed_images} {examples} look like the reference"
    chart = detector.chart_names.name_of(detector.alarm.chart_index)
    return f"{cause.explanation}; the first chart over its threshold was {chart}"


def describe_onset(detector: StreamDetector, first_step: int) -> DriftOnset:
    """Describe when the change began and when it set off the alarm, in images and in UTC."""
    layout = detector.profile.baseline.layout
    before = int(detector.asked[first_step] - detector.rows[first_step][layout.slices["all"]][0])
    unix_seconds = float(detector.times[max(first_step - 1, 0)])
    return DriftOnset(
        images_ago=detector.answered_images - before,
        at=format_utc_seconds(unix_seconds),
        alarm=describe_alarm(detector),
    )


def describe_alarm(detector: StreamDetector) -> AlarmTime | None:
    """Describe when an alarm was set off, and by which chart; None without an alarm."""
    if (alarm := detector.alarm) is None:
        return None
    return AlarmTime(
        image_number=alarm.answered_images,
        at=format_utc_seconds(alarm.unix_seconds),
        chart=detector.chart_names.name_of(alarm.chart_index),
    )


def format_utc_seconds(unix_seconds: float) -> str:
    """Format a moment as ISO 8601 in UTC."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def describe_charts(detector: StreamDetector, window: Window) -> list[ChartReading]:
    """Describe every chart by name, the highest first.

    A value is the logarithm of how many images without drift it takes, on average, for the chart to be as high.
    """
    values, threshold, names = detector.values(), detector.threshold(), detector.chart_names
    by_feature = names.highest_by_statistic(values)
    charts = [feature_reading(window, index, float(value), threshold) for index, value in enumerate(by_feature)]
    for name in dict.fromkeys(CLASS_AND_FEATURE_CHARTS):
        height = max(
            float(values[names.score_chart_count + index])
            for index, chart in enumerate(CLASS_AND_FEATURE_CHARTS)
            if chart == name
        )
        effect = class_share_effect(detector, window, name)
        charts.append(ChartReading(name=name, value=height, threshold=threshold, effect=effect))
    silent = find_silent_charts(detector.profile)
    return sorted((chart for chart in charts if chart.name not in silent), key=lambda chart: -chart.value)


def find_silent_charts(profile: ReferenceProfile) -> set[str]:
    """Return the charts that never move: of classes where there is one, of features where none are charted."""
    class_charts = {name for name in CLASS_AND_FEATURE_CHARTS if name.startswith("class")}
    feature_charts = {*CLASS_AND_FEATURE_CHARTS} - class_charts
    feature_charts |= {statistic.name for statistic in profile.schema.statistics if statistic.source == "features"}
    has_features = profile.baseline.layout.fourier_count > 0
    return (class_charts if len(profile.class_names) == 1 else set()) | (set() if has_features else feature_charts)


def feature_reading(window: Window, feature_index: int, value: float, threshold: float) -> ChartReading:
    """Describe the chart of one feature, with the window's difference in the feature's own unit as its effect."""
    statistic = window.profile.schema.statistics[feature_index]
    unit, factor = statistic.unit, statistic.unit_factor
    middle, reach = (
        window.shifts[feature_index],
        Z_95 * window.scale[feature_index] / np.sqrt(window.effective_sample_size),
    )
    ends = [float(end) * factor for end in (middle, middle - reach, middle + reach)]
    if unit == "times":
        ends = [float(np.exp(end)) for end in ends]
    effect = ChartEffect(unit=unit, value=ends[0], low=ends[1], high=ends[2])
    return ChartReading(name=statistic.name, value=value, threshold=threshold, effect=effect)


def class_share_effect(detector: StreamDetector, window: Window, name: str) -> ChartEffect | None:
    """Return the class behind a chart of classes and its share; None for other charts, which have no unit."""
    if not name.startswith("class"):
        return None
    index = int(detector.charts.classes[0, CLASS_AND_FEATURE_CHARTS.index(name)].argmax())
    share = float(window.class_counts[index] / max(window.image_count, 1))
    low, high = wilson_interval(share, window.image_count / float(detector.charts.runs.variance_factor()[0]))
    return ChartEffect(
        unit=f"of the {detector.profile.schema.example_name}",
        value=share,
        low=low,
        high=high,
        class_name=detector.profile.class_names[index],
        reference=float(smoothed_shares(window.reference_class_counts)[index]),
    )


def chart_history(detector: StreamDetector) -> ChartHistory:
    """Return the height of each chart after each step, with the number of its last image and its Unix time."""
    layout, names = detector.profile.baseline.layout, dict.fromkeys(detector.profile.condition_names)
    steps = [detector.profile.share_by_name(counts) for counts in layout.read_condition_counts(detector.rows)]
    trace = detector.trace.astype(np.float64)
    heights = np.nan_to_num(trace, posinf=0, neginf=0).round(3)  # some charts are infinite in the first steps
    return ChartHistory(
        image_numbers=detector.asked.tolist(),
        times=detector.times.round(3).tolist(),
        threshold=heights[:, -1].tolist(),
        charts={
            name: heights[:, index].tolist()
            for index, name in enumerate(detector.chart_names.unique)
            if name not in find_silent_charts(detector.profile)
        },
        conditions={name: [round(shares[name], 3) for shares in steps] for name in names} if len(names) > 1 else {},
    )
