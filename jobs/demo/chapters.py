"""The chapters of the demo: each runs the commands a user would give, and leaves records."""

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dashboards import demo_report as telling
from dashboards import reports as pages
from dashboards.page import written
from equipoise.bundle import bundle
from equipoise.images.thumbnails import MOST, thumbnail, usual
from equipoise.storage import atomic as store
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.private_ray import BIN, Stage
from jobs.cluster.processes import until
from jobs.demo.traffic import Customers

EVENING = Scene(kelvin=4000, veil=0.1, highlight=0.3)  # a warmer light, and a table that reflects
EACH, LABELS = 400, 100
MOST_ROUNDS = 10  # of customers, until that many of their pictures are kept
SWEEP = ("--workload", "digits", "--workers", "1", "2", "--budget-seconds", "40")
SOURCE = (
    *("--workload", "vending-source", "--batch", "32", "--lr", "0.05", "--schedule", "cosine"),
    *("--examples", "16000", "--target", "0.985"),
)
VENDING = ("--workload", "vending", "--batch", "32", "--lr", "0.1", "--target", "0.97")
PAUSE = 0.1  # seconds between customers while the machine learns on: it has two cores


@dataclass
class Story:
    """What happened so far."""

    out: Path
    stage: Stage
    customers: Customers
    facts: dict[str, Any] = field(default_factory=lambda: deepcopy(dict(telling.NOTHING)))
    """what no other record has: what was sent, and what came back"""

    def job(self, name: str, *words: object, fine: tuple[int, ...] = (0,)) -> None:
        """A job, as a user would call it, to its end; what it says goes into logs/."""
        module, log = name.partition("-")[0], self.out / "logs" / f"{name}.log"
        status = self.stage.start(sys.executable, "-m", f"jobs.{module}", *map(str, words), log=log).wait()
        if status not in fine:
            last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
            raise RuntimeError(f"jobs.{module} ended with {status}; {log} has all of it:\n{last}")

    def sent(self, name: str, scene: Scene | None = None) -> None:
        """Customers come, and what they got is noted."""
        missed = len(self.customers.unanswered)
        right = self.customers.right(EACH, scene)
        self.facts["sent"][name] = {
            "light": asdict(scene or Scene()),
            "requests": EACH,
            "right": right,
            "accuracy": right / EACH,
            "unanswered": len(self.customers.unanswered) - missed,
        }

    def right(self, name: str) -> float:
        """Share that was right of what was sent."""
        return float(self.facts["sent"][name]["accuracy"])

    def verdict(self, state: str) -> dict[str, Any]:
        """What the service says of all requests, once it says that."""

        def found() -> dict[str, Any] | None:
            said: dict[str, Any] = self.customers.ask("GET", "/drift")
            counted = said["images"] >= self.customers.answered[said["version"]]
            return said if said["state"] == state and counted else None

        said: dict[str, Any] = until(found, 60, f"a verdict of {state}")
        return said

    def read(self, *place: str) -> dict[str, Any]:
        """A record that was left."""
        found: dict[str, Any] = store.read_json(self.out.joinpath(*place))
        return found


def swept(story: Story) -> list[str]:
    """How many workers, what batch, what rate?"""
    story.job("sweep", *SWEEP, "--out", story.out / "sweep", fine=(0, 1))
    found = story.read("sweep", "plan.json")
    if found["plan"] is None:
        raise RuntimeError(f"the sweep came to no plan: {'; '.join(found['warnings'])}")
    confirm = story.read("sweep", "confirm.json")
    return [telling.planned(found), f"why: {found['plan']['why']}", telling.confirmed(confirm)]


def learned(story: Story) -> list[str]:
    """Fine-tune what has seen other products, and publish it."""
    source, run, made = story.out / "source", story.out / "vending", story.out / "bundles" / "vending"
    story.job("train-source", *SOURCE, "--out", source)
    story.job("train-vending", *VENDING, "--init", source, "--out", run)
    story.job("publish", "--run", run, "--out", made, "--no-native")
    return [telling.learned(story.read("vending", "record.json"), story.read("bundles", "vending", "bundle.json"))]


def served(story: Story) -> list[str]:
    """Serve it, and send what it knows."""
    link, port = story.out / "bundles" / "served", story.customers.port
    link.symlink_to("vending")
    words = {"bundle": link, "port": port, "watch": 1, "tick": 0.1, "state": story.out / "state"}
    words |= {"capture": story.out / "kept", "captures": 4 * LABELS}
    command = (str(BIN / "serve"), "run", "services.app:build", *(f"{name}={value}" for name, value in words.items()))
    log = story.out / "logs" / "serve.log"
    process = story.stage.start(*command, log=log)
    until(lambda: process.poll() is not None or story.customers.ready(), 120, "the service's start")
    if process.poll() is not None:
        raise RuntimeError(f"the service does not start: {log} says why")
    story.sent("clean")
    found = story.verdict("ok")
    return [
        f"{telling.answered(story.facts['sent']['clean'])}; the verdict is {found['state']}",
        f"http://127.0.0.1:{port}/ shows requests and drift while this goes on",
    ]


def changed(story: Story) -> list[str]:
    """The light gets warmer, the table reflects."""
    story.sent("drift", EVENING)
    found = story.verdict("drift")
    noted(story, found)
    return [f"{telling.answered(story.facts['sent']['drift'])}; {telling.noticed(found)}", f"why: {found['why']}"]


def noted(story: Story, found: dict[str, Any]) -> None:
    """The verdict and its page, kept."""
    model, asked = bundle.load(str(story.out / "bundles" / "vending")), story.customers
    moved = [(thumbnail(asked.ask("GET", f"/capture/{one['id']}")), one["label"]) for one in asked.kept(MOST)]
    store.write_json(story.out / "drift" / "verdict.json", found)
    trace, events = asked.ask("GET", "/drift/charts"), asked.ask("GET", "/drift/history")["events"]
    page = pages.of_check(found, moved, usual(model.reference(), model.classes), trace, events)
    written(page, story.out / "drift" / "drift.html")


def adapted(story: Story) -> list[str]:
    """A hundred labels, and a model that learns on while customers come."""
    asked, link = story.customers, story.out / "bundles" / "served"
    for _ in range(MOST_ROUNDS):
        if len(asked.kept(LABELS)) == LABELS:
            break
        asked.right(LABELS, EVENING)
    story.facts["labels"] = asked.labels(LABELS)
    before, answered, missed = asked.version(), asked.answered.total(), len(asked.unanswered)
    with asked.coming(EVENING, PAUSE):
        words = ("--service", f"http://127.0.0.1:{asked.port}", "--capture", story.out / "kept", "--link", link)
        story.job("adapt", *words, "--out", story.out / "bundles" / "adapted")
        until(lambda: asked.version() != before, 60, "the swap")
    meanwhile = {"requests": asked.answered.total() - answered, "unanswered": len(asked.unanswered) - missed}
    story.facts["sent"]["meanwhile"] = meanwhile
    story.sent("adapted", EVENING)
    story.sent("again")
    lost = story.right("clean") - story.right("drift")
    if lost <= 0:
        raise RuntimeError("the light cost nothing: there was nothing to bring back")
    story.facts["regained"] = (story.right("adapted") - story.right("drift")) / lost
    return [telling.mended(story.facts)]


CHAPTERS: dict[str, Callable[[Story], list[str]]] = {
    "sweep digits for a plan, and confirm it": swept,
    "fine-tune a vending machine's eye, and publish it": learned,
    "serve it to customers": served,
    "the light changes": changed,
    "adapt to it, and swap while customers come": adapted,
}
