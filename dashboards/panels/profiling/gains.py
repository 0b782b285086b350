"""Panel of the proposals of a profile: predicted gains with their intervals, and those that were measured."""

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.panels.profiling.step_parts import BAR_ROW_PIXELS, FRAME_PIXELS
from dashboards.theme import BLUE, NEUTRAL_COLOR, apply_theme, format_seconds, format_significant
from equipoise.formatting import format_share
from equipoise.planning.interval import IntervalEstimate
from equipoise.profiling.profile_report import ProfileReport, Proposal

READING_OF_GAINS = (
    "Examples per second with a change over those without it; 1 gains nothing. A hollow mark is predicted, with its"
    " interval of 80 %; a filled one was measured by --try, in turns with steps of the run as it is. A filled mark"
    " outside of the interval refutes the prediction."
)


def format_gain(gain: IntervalEstimate) -> str:
    """Format a gain with its interval, to two decimals."""
    return f"{gain.value:.2f} ({gain.low:.2f} to {gain.high:.2f})"


def gains_figure(report: ProfileReport) -> go.Figure:
    """Draw predicted gains as hollow marks with intervals, and measured ones as filled marks."""
    figure = go.Figure()
    proposals = report.proposals
    figure.add_scatter(
        y=[proposal.name for proposal in proposals],
        x=[proposal.gain.value for proposal in proposals],
        error_x={
            "array": [proposal.gain.high - proposal.gain.value for proposal in proposals],
            "arrayminus": [proposal.gain.value - proposal.gain.low for proposal in proposals],
            "thickness": 1,
        },
        mode="markers",
        marker={"color": BLUE, "symbol": "circle-open", "size": 9},
        hovertemplate="%{x:.3~r} predicted",
        name="predicted",
    )
    tried = [proposal for proposal in proposals if proposal.tried_gain is not None]
    if tried:
        figure.add_scatter(
            y=[proposal.name for proposal in tried],
            x=[proposal.tried_gain for proposal in tried],
            mode="markers",
            marker={"color": BLUE, "symbol": "circle", "size": 9},
            hovertemplate="%{x:.3~r} measured",
            name="measured",
        )
    figure.add_vline(1, line_dash="dot", line_color=NEUTRAL_COLOR)
    figure.update_xaxes(title_text="examples per second, times those of the run")
    figure.update_yaxes(autorange="reversed")
    return apply_theme(figure, FRAME_PIXELS + BAR_ROW_PIXELS * len(proposals))


def build_gains_panel(report: ProfileReport) -> Panel:
    """Build the panel of predicted and measured gains."""
    return Panel(
        name="gains",
        figure=gains_figure(report),
        caption="Gain of each proposal: predicted marks are hollow, measured ones filled.",
        reading=READING_OF_GAINS,
        data_table=proposals_table(report),
    )


def proposals_table(report: ProfileReport) -> Table:
    """Return the proposals as a table."""
    columns = ["proposal", "what to do", "predicted gain (80 %)", "measured", "verdict", "because"]
    return Table(name="proposals", columns=columns, rows=[list_proposal_cells(row) for row in report.proposals])


def list_proposal_cells(proposal: Proposal) -> list[TableCell]:
    """List the cells of one proposal."""
    return [
        proposal.name,
        proposal.action,
        NumberCell(proposal.gain.value, format_gain(proposal.gain)),
        NumberCell(proposal.tried_gain, format_significant(proposal.tried_gain)),
        proposal.verdict,
        proposal.reason + "; changes what is learned too" * proposal.changes_learning,
    ]


def losses_table(report: ProfileReport) -> Table:
    """Return where the time of a step goes, by cause."""
    rows: list[list[TableCell]] = [
        [
            loss.name,
            NumberCell(loss.seconds, format_seconds(loss.seconds)),
            NumberCell(loss.seconds, format_share(loss.seconds / report.steps.seconds)),
            NumberCell(loss.gain.value, format_gain(loss.gain)),
        ]
        for loss in report.losses
    ]
    return Table(name="losses", columns=["where", "a step", "share", "gain without it (80 %)"], rows=rows)
