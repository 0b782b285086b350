"""The story of a demo: what it left in records, in words and on a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards import plan_tables as frames
from dashboards import theme as style
from dashboards.page import Link, Page, Panel, Section
from equipoise.storage import atomic as store

Found = Mapping[str, Any]
STORY = "story.json"
NOTHING: Found = {"demo": 1, "chapters": [], "sent": {}}
"""of a story that has not begun"""
TITLES = {"clean": "all is well", "drift": "the light changed", "adapted": "adapted", "again": "adapted, old light"}
"""of what was sent, in the order in which it is told"""


@dataclass(frozen=True)
class Story:
    """The records of a demo; every number that is told of it stands in one of them."""

    story: Found
    plan: Found
    confirm: Found
    run: Found
    bundle: Found
    verdict: Found


def of_demo(folder: Path) -> bool:
    """Whether a folder is a demo's."""
    try:
        found = store.read_json(folder / STORY)
    except (ValueError, OSError):
        return False
    return isinstance(found, dict) and NOTHING.keys() <= found.keys()


def read(folder: Path) -> Story:
    """From where each chapter left it."""
    places = ("sweep/plan", "sweep/confirm", "vending/record", "bundles/vending/bundle", "drift/verdict")
    return Story(store.read_json(folder / STORY), *(store.read_json(folder / f"{place}.json") for place in places))


def planned(plan: Found) -> str:
    """What a sweep came to."""
    one = plan["plan"]
    took = one["seconds"]
    return (
        f"{frames.place(one['nodes'], one['workers'])} x {one['batch']} at a learning rate of {one['lr']:.3g}: about"
        f" {style.seconds(took['value'])} to the target ({style.seconds(took['low'])} to {style.seconds(took['high'])})"
    )


def confirmed(confirm: Found) -> str:
    """How the plan kept its word."""
    if confirm["seconds"] is None:
        return "the confirming run did not reach the target"
    took = f"the confirming run took {style.seconds(confirm['seconds'])}"
    if confirm["inside"]:
        return f"{took}: inside of what was foretold"
    examples, step = (confirm[name] for name in ("examples", "step"))
    return (
        f"{took}: outside of what was foretold, with {examples['ratio']:.2f} of the examples and steps that took"
        f" {step['ratio']:.2f} of the time"
    )


def learned(run: Found, bundle: Found) -> str:
    """What was fine-tuned and published."""
    seen, engine = run["laps"][-1]["seen"], bundle["engine"]["name"]
    return f"{style.share(bundle['metrics']['accuracy'])} right on test after {seen:,} examples; answers by {engine}"


def noticed(verdict: Found) -> str:
    """The verdict."""
    return f"{verdict['cause']}, for the last {verdict['since']['images']:,} of {verdict['images']:,} requests"


def mended(story: Found) -> str:
    """What it took, and what came back."""
    sent = story["sent"]
    meanwhile = f"{sent['meanwhile']['requests']:,} requests meanwhile, {sent['meanwhile']['unanswered']} unanswered"
    back = f"{answered(sent['adapted'])} under the new light, {answered(sent['again'])} under the old one"
    return f"{story['labels']} labels, {meanwhile}; {back}: {regained(story)} of what was lost is back"


def regained(story: Found) -> str:
    """A share; chance may make it more than all."""
    return style.share(story["regained"]) if story["regained"] < 1 else "all"


def answered(sent: Found) -> str:
    """How customers fared."""
    return f"{style.share(sent['accuracy'])} of {sent['requests']:,} right"


def told(found: Story) -> dict[str, str]:
    """All of it in a line for each chapter."""
    sent = found.story["sent"]
    return {
        "plan": f"{planned(found.plan)}; {confirmed(found.confirm)}",
        "model": learned(found.run, found.bundle),
        "service": answered(sent["clean"]),
        "drift": f"{answered(sent['drift'])}; {noticed(found.verdict)}",
        "remedy": mended(found.story),
    }


def figure(sent: Mapping[str, Found]) -> go.Figure:
    """What was right, chapter by chapter."""
    values = [sent[name]["accuracy"] for name in TITLES]
    drawn = go.Figure()
    drawn.add_bar(
        x=list(TITLES.values()),
        y=values,
        text=[style.share(value) for value in values],
        textposition="outside",
        marker_color=[style.BLUE, style.ORANGE, style.GREEN, style.GREEN],
    )
    drawn.update_yaxes(title_text="requests answered right", tickformat=".0%", range=[0, 1.1])
    return style.styled(drawn).update_layout(showlegend=False)


def page(found: Story) -> Page:
    """With the way to the page of each chapter."""
    says = "Of the pictures sent in each part of the story, how many the service knew."
    shown = Panel(name="right", figure=figure(found.story["sent"]), says=says)
    chapters = zip(found.story["chapters"], told(found).values(), strict=True)
    sections = [Section(title="What customers saw", words=[f"{found.verdict['why']}."], parts=[shown])]
    for at, (one, line) in enumerate(chapters, 1):
        sections.append(Section(title=f"{at}. {one['title']}: {style.seconds(one['seconds'])}", words=[line]))
    links = [
        Link("the curve", "sweep/curve.html"),
        Link("how it scales", "sweep/scaling.html"),
        Link("the fine-tuning", "vending/run.html"),
        Link("the drift", "drift/drift.html"),
        Link("all experiments", "experiments.html"),
    ]
    lead = f"Told in {style.seconds(found.story['seconds'])}."
    return Page(title="Equipoise: the whole story", lead=lead, sections=sections, links=links)
