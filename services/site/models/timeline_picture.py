"""Picture of the verdicts of a deployment over time: a bar of coloured spans, and the same in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.theme import format_utc
from services.site.models.deployments.verdict_timeline import VerdictSpan

PICTURE_WIDTH = 1000.0
MIN_WIDTH = 4.0  # of a span, so that a short drift can be seen


@dataclass(frozen=True, kw_only=True)
class TimelineBar:
    """Span of a picture, in its units."""

    state: str
    x: float
    width: float
    text: str
    """what it shows, in words"""


@dataclass(frozen=True, kw_only=True)
class TimelinePicture:
    """Bars of a picture that is `PICTURE_WIDTH` wide, and its ends."""

    bars: tuple[TimelineBar, ...]
    begin: str
    end: str


def draw_timeline(spans: Sequence[VerdictSpan]) -> TimelinePicture | None:
    """Return the picture of spans that follow each other; None without any."""
    if not spans:
        return None
    begin, end = spans[0].start, spans[-1].end
    scale = PICTURE_WIDTH / max(end - begin, 1e-9)
    bars = tuple(
        TimelineBar(
            state=span.state,
            x=min((span.start - begin) * scale, PICTURE_WIDTH - MIN_WIDTH),
            width=max((span.end - span.start) * scale, MIN_WIDTH),
            text=describe_span(span),
        )
        for span in spans
    )
    return TimelinePicture(bars=bars, begin=format_utc(begin), end=format_utc(end))


def describe_span(span: VerdictSpan) -> str:
    """Return what a span shows in words."""
    cause = f" ({span.cause})" if span.cause else ""
    return f"{span.state}{cause} from {format_utc(span.start)} to {format_utc(span.end)}"
