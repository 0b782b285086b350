"""State of a demo between its chapters, and what the chapters of every act do with the service."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dashboards.demo_report import describe_answers, describe_phase_verdicts, describe_recovery
from dashboards.demo_story import DemoStory, PhaseAnswers, PhaseVerdict, SwapRequests
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict, VerdictState
from equipoise.errors import CommandFailed
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.private_ray import ENVIRONMENT_BIN, PrivateRay
from jobs.cluster.processes import wait_until
from jobs.demo.service_clients import JudgedAnswers, ServiceClients

IMAGES_PER_SCENE = 400
IMAGES_PER_RUN = 20  # under one light, where both are mixed
MAX_VERDICT_ROUNDS = 5  # of IMAGES_PER_SCENE requests each until the service has a verdict
MAX_PHASE_ROUNDS = 10  # of as many until enough images of a phase were observed
MIN_PHASE_IMAGES = 100  # observed under the light of a phase: shares of conditions in fewer are mostly chance
MAX_CAPTURE_ROUNDS = 10  # rounds of requests until enough drifted images are captured
PAUSE_SECONDS = 0.1  # between requests during fine-tuning, which shares two cores with the service
START_SECONDS, SWAP_SECONDS, VERDICT_SECONDS = (
    120,
    60,
    60,
)  # until a server answers, a model is swapped, a verdict is there


@dataclass
class DemoState:
    """State of the demo: its folder, Ray cluster, simulated clients and story so far."""

    out: Path
    private_ray: PrivateRay
    clients: ServiceClients
    story: DemoStory = field(default_factory=DemoStory.empty)

    @property
    def captures(self) -> Path:
        """Folder of the requests that the service keeps."""
        return self.out / "kept"

    @property
    def served_link(self) -> Path:
        """Symbolic link to the bundle that is served."""
        return self.out / "bundles" / "served"

    def run_job(
        self, name: str, *arguments: object, ok_statuses: tuple[int, ...] = (0,), result: Path | None = None
    ) -> None:
        """Run a command of `jobs` to its end with its output in logs/.

        Raise if it exits with another status, or without its result: Python exits with 1 after any error.
        """
        module, log = name.partition("-")[0], self.out / "logs" / f"{name}.log"
        status = self.private_ray.start_command(
            sys.executable, "-m", f"jobs.{module}", *map(str, arguments), log=log
        ).wait()
        if status not in ok_statuses or (result and not result.exists()):
            tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
            raise CommandFailed(f"jobs.{module} exited with status {status}; see {log}, which ends:\n{tail}")

    def start_server(self, name: str, command: Sequence[object], is_ready: Callable[[], bool]) -> None:
        """Start a server and wait until it answers; its output goes to logs/."""
        log = self.out / "logs" / f"{name}.log"
        process = self.private_ray.start_command(*map(str, command), log=log)
        wait_until(lambda: process.poll() is not None or is_ready(), START_SECONDS, f"{name} to start")
        if process.poll() is not None:
            raise CommandFailed(f"cannot start {name}: see {log}")

    def send_images(self, name: str, *scenes: Scene) -> None:
        """Send images to the service, and record in the story how many it answered correctly.

        Several scenes take turns, in runs of IMAGES_PER_RUN images.
        """
        failures_before, scenes = len(self.clients.failure_reasons), scenes or (Scene(),)
        answers = self.send_and_judge(scenes)
        self.story.sent[name] = PhaseAnswers(
            requests=IMAGES_PER_SCENE,
            right=answers.right,
            accuracy=answers.right / IMAGES_PER_SCENE,
            average_precision=answers.average_precision,
            unanswered=len(self.clients.failure_reasons) - failures_before,
            light=asdict(scenes[0]) if len(scenes) == 1 else {},
        )

    def send_and_judge(self, scenes: tuple[Scene, ...]) -> JudgedAnswers:
        """Send IMAGES_PER_SCENE images under these lights in turn, and judge the answers."""
        run_images = IMAGES_PER_SCENE if len(scenes) == 1 else IMAGES_PER_RUN
        return self.clients.send_and_judge(IMAGES_PER_SCENE, scenes, run_images)

    def send_images_and_read_verdict(self, name: str, *scenes: Scene) -> None:
        """Send images to the service, and record in the story its answers and its verdict after them."""
        before = self.wait_for_verdict()
        self.send_images(name, *scenes)
        self.send_until_verdict({"ok", "drift"}, *scenes)
        verdict = self.send_until_observed(before.looked_at + MIN_PHASE_IMAGES, *scenes)
        history = msgspec.convert(self.clients.request_service("GET", "/drift/charts"), type=ChartHistory)
        shares = measure_condition_shares(history, before.images)
        self.story.verdicts[name] = PhaseVerdict(state=verdict.state, why=verdict.why, conditions=shares)

    def send_until_verdict(self, states: set[VerdictState], *scenes: Scene) -> StreamVerdict:
        """Return the verdict once it is one of these states; send more images while it is not.

        A service observes requests for at most 1 % of the time: a busy machine observes few of 400 images.
        """
        for _ in range(MAX_VERDICT_ROUNDS):
            verdict = self.wait_for_verdict()
            if verdict.state in states:
                return verdict
            self.send_and_judge(scenes or (Scene(),))
        raise CommandFailed(f"the verdict is {verdict.state}, not {' or '.join(sorted(states))}: {verdict.why}")

    def send_until_observed(self, count: int, *scenes: Scene) -> StreamVerdict:
        """Send images until the service has observed so many, or for as many rounds as allowed; return the verdict."""
        for _ in range(MAX_PHASE_ROUNDS):
            if self.wait_for_verdict().looked_at >= count:
                break
            self.send_and_judge(scenes or (Scene(),))
        return self.wait_for_verdict()

    def wait_for_verdict(self) -> StreamVerdict:
        """Wait up to 60 s for a verdict that covers all requests sent, and return it."""

        def complete_verdict() -> StreamVerdict | None:
            verdict = StreamVerdict.from_json(self.clients.request_service("GET", "/drift"))
            return verdict if verdict.images >= self.clients.answers_by_version[str(verdict.version)] else None

        verdict: StreamVerdict = wait_until(complete_verdict, VERDICT_SECONDS, "a verdict")
        return verdict


def measure_condition_shares(history: ChartHistory, images_before: int) -> dict[str, float]:
    """Return the share of each known condition among the images answered since `images_before`, by name.

    A step that began before holds earlier images too: it counts only where no later step is there.
    """
    ends = np.array(history.image_numbers)
    starts = np.concatenate([[0], ends])[:-1]
    is_later = starts >= images_before if (starts >= images_before).any() else ends > images_before
    sizes = (ends - starts) * is_later
    total = max(int(sizes.sum()), 1)
    return {name: float(sizes @ np.array(shares)) / total for name, shares in history.conditions.items()}


def serve_bundle(state: DemoState, name: str, max_captures: int) -> list[str]:
    """Serve a bundle behind a link and send it images like those it was trained on."""
    state.served_link.symlink_to(name)
    port = state.clients.port
    settings: dict[str, Any] = {"bundle": state.served_link, "port": port, "reload_seconds": 1, "report_seconds": 0.1}
    settings |= {"state_dir": state.out / "state"}
    settings |= {"capture_dir": state.captures, "max_captures": max_captures}
    arguments = [f"{name}={value}" for name, value in settings.items()]
    command = [ENVIRONMENT_BIN / "serve", "run", "services.app:build", *arguments]
    state.start_server("serve", command, state.clients.is_ready)
    state.send_images("clean")
    verdict = state.send_until_verdict({"ok"})
    return [
        f"{describe_answers(state.story.sent['clean'])}; the verdict is {verdict.state}",
        f"http://127.0.0.1:{port}/ shows requests and drift while the demo runs",
    ]


def wait_for_captures(state: DemoState, count: int, scene: Scene) -> None:
    """Send images under a light until the service has kept so many of those since the alarm."""
    for _ in range(MAX_CAPTURE_ROUNDS):
        if len(state.clients.list_drift_captures(count)) == count:
            break
        state.send_and_judge((scene,))


def adapt_under_load(state: DemoState, scene: Scene, *options: object) -> None:
    """Adapt the served model while requests keep coming, and record in the story what became of them."""
    clients, old_version = state.clients, state.clients.served_version()
    answers_before, failures_before = clients.answers_by_version.total(), len(clients.failure_reasons)
    with clients.send_in_background(scene, PAUSE_SECONDS):
        service = ("--service", f"http://127.0.0.1:{clients.port}", "--capture-dir", state.captures)
        state.run_job(
            "adapt", *service, *options, "--link", state.served_link, "--out", state.out / "bundles" / "adapted"
        )
        wait_until(lambda: clients.served_version() != old_version, SWAP_SECONDS, "the swap")
    state.story.swap = SwapRequests(
        requests=clients.answers_by_version.total() - answers_before,
        unanswered=len(clients.failure_reasons) - failures_before,
    )


def send_after_swap(state: DemoState, scene: Scene) -> list[str]:
    """Send images under the new light, the old one and both, and return in words what the adaptation gave."""
    state.send_images_and_read_verdict("adapted", scene)
    state.send_images_and_read_verdict("again", Scene())
    state.send_images_and_read_verdict("mixed", Scene(), scene)
    quality = {name: answers.quality for name, answers in state.story.sent.items()}
    lost = quality["clean"] - quality["drift"]
    if lost <= 0:
        raise CommandFailed("the new light cost no accuracy: there is nothing to recover")
    state.story.regained = (quality["adapted"] - quality["drift"]) / lost
    return [describe_recovery(state.story), *describe_phase_verdicts(state.story).values()]
