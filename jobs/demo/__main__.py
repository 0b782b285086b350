"""The whole story on embedded data: a sweep and its plan, a model that is published and served, a light that changes,
a verdict, and a model that works again. It leaves runs/demo/index.html.

python -m jobs.demo [--out runs/demo] [--keep]
"""

import shutil
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import tyro

from dashboards import build
from dashboards import demo_report as telling
from dashboards.experiments import FOREIGN
from dashboards.page import written
from equipoise.runs import folder as runs
from equipoise.storage import atomic as store
from jobs.cluster.private_ray import stage
from jobs.cluster.processes import free_ports
from jobs.demo.chapters import CHAPTERS, Story
from jobs.demo.traffic import Customers

SLOTS = 2
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    out: Path = Path("runs/demo")
    """folder for all that it leaves; that of an earlier demo is begun anew"""
    keep: bool = False
    """leave the service up at the end, until Ctrl-C"""


def main() -> int:
    """Exit status: 0 the story came to its end, 1 a chapter failed, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(Asked)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stopped)
    out = asked.out.absolute()
    with ExitStack() as held:
        try:
            require_mine(out)
            held.enter_context(runs.alone(out))
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        try:
            emptied(out)
            return told(out, asked.keep)
        except KeyboardInterrupt:
            print("\nstopped: nothing is left running", file=sys.stderr)
            return 143
        except (RuntimeError, OSError, *FOREIGN) as error:  # foreign: records that do not hold what is to be told
            known = isinstance(error, RuntimeError | OSError | ValueError)
            print(f"\nthe story ends here: {error if known else repr(error)}", file=sys.stderr)
            return 1


def stopped(_number: int, _: FrameType | None) -> None:
    """To be ended, or to lose the terminal, is as Ctrl-C; who asks again meanwhile is not heard."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def require_mine(out: Path) -> None:
    """Make the folder; refuse one that is no demo's."""
    try:
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file: choose a folder")
        out.mkdir(parents=True, exist_ok=True)
        others = {file.name for file in out.iterdir()} - {runs.LOCK}
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written to ({error.strerror}): choose another") from None
    if others and not telling.of_demo(out):
        raise ValueError(f"--out {out} is not empty and of no demo: choose another")


def emptied(out: Path) -> None:
    """Without what an earlier demo left there."""
    for file in out.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        elif file.name not in (runs.LOCK, telling.STORY):  # the sign that the folder is ours stays to the end
            file.unlink()
    (out / "logs").mkdir()
    store.write_json(out / telling.STORY, telling.NOTHING)


def told(out: Path, keep: bool) -> int:
    """Every chapter, then the page."""
    begun = time.monotonic()
    with stage(SLOTS) as scene:
        story = Story(out, scene, Customers(free_ports(1)[0]))
        for place, title in enumerate(CHAPTERS, 1):
            print(f"[{place}/{len(CHAPTERS)}] {title} ...", flush=True)
            print(*(f"      {line}" for line in chapter(story, title)), sep="\n", flush=True)
        story.facts["seconds"] = time.monotonic() - begun
        store.write_json(out / telling.STORY, story.facts)
        print(*ending(out), sep="\n", flush=True)
        if keep:
            print(f"\nthe service stays up at http://127.0.0.1:{story.customers.port}/ until Ctrl-C", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def chapter(story: Story, title: str) -> list[str]:
    """What is to be said of it; what it found is noted even if a later one fails."""
    start = time.monotonic()
    store.write_json(story.out / telling.STORY, story.facts)
    lines = CHAPTERS[title](story)
    seconds = time.monotonic() - start
    story.facts["chapters"].append({"title": title, "seconds": seconds})
    return [*lines, f"({seconds:.0f} s)"]


def ending(out: Path) -> list[str]:
    """The page, what was found, and what to try next."""
    found = telling.read(out)
    build.build(out, out / "experiments.html")
    index = written(telling.page(found), out / "index.html")
    return [
        "",
        f"Found in {found.story['seconds']:.0f} s:",
        *(f"  {name:8}{line}" for name, line in telling.told(found).items()),
        f"  page    {index}",
        "",
        "Try next:",
        f"  .venv/bin/python -m jobs.sweep --workload folder --data photos --out {out.parent}/photos  # your pictures",
        f"  .venv/bin/serve run services.pages:build runs={out.parent}  # the pages of all of them, live",
        f"  .venv/bin/serve run services.app:build bundle={out / 'bundles' / 'adapted'}  # then send it a picture",
    ]


if __name__ == "__main__":
    sys.exit(main())
