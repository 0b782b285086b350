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

from dashboards.build import build_index
from dashboards.demo_report import (
    EMPTY_STORY_JSON,
    STORY_FILE,
    build_demo_page,
    is_demo_folder,
    read_demo_records,
    summarize_demo,
)
from dashboards.experiments import READ_ERRORS
from dashboards.page import write_page
from equipoise.runs.folder import LOCK_FILE_NAME, lock_folder
from equipoise.storage.atomic import write_json
from jobs.cluster.private_ray import start_private_ray
from jobs.cluster.processes import find_free_ports
from jobs.demo.chapters import CHAPTERS, DemoState
from jobs.demo.traffic import SimulatedClients

RAY_SLOTS = 2
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    __doc__ = __doc__

    out: Path = Path("runs/demo")
    """folder for all that it leaves; that of an earlier demo is begun anew"""
    keep: bool = False
    """leave the service up at the end, until Ctrl-C"""


def main() -> int:
    """Exit status: 0 the story came to its end, 1 a chapter failed, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(DemoOptions)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, raise_keyboard_interrupt)
    out = asked.out.absolute()
    with ExitStack() as held:
        try:
            require_demo_folder(out)
            held.enter_context(lock_folder(out))
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        try:
            clear_demo_folder(out)
            return run_demo(out, asked.keep)
        except KeyboardInterrupt:
            print("\nstopped: nothing is left running", file=sys.stderr)
            return 143
        except (RuntimeError, OSError, *READ_ERRORS) as error:  # foreign: records that do not hold what is to be told
            known = isinstance(error, RuntimeError | OSError | ValueError)
            print(f"\nthe story ends here: {error if known else repr(error)}", file=sys.stderr)
            return 1


def raise_keyboard_interrupt(_number: int, _: FrameType | None) -> None:
    """To be ended, or to lose the terminal, is as Ctrl-C; who asks again meanwhile is not heard."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def require_demo_folder(out: Path) -> None:
    """Make the folder; refuse one that is no demo's."""
    try:
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file: choose a folder")
        out.mkdir(parents=True, exist_ok=True)
        others = {file.name for file in out.iterdir()} - {LOCK_FILE_NAME}
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written to ({error.strerror}): choose another") from None
    if others and not is_demo_folder(out):
        raise ValueError(f"--out {out} is not empty and of no demo: choose another")


def clear_demo_folder(out: Path) -> None:
    """Without what an earlier demo left there."""
    for file in out.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        elif file.name not in (LOCK_FILE_NAME, STORY_FILE):  # the sign that the folder is ours stays to the end
            file.unlink()
    (out / "logs").mkdir()
    write_json(out / STORY_FILE, EMPTY_STORY_JSON)


def run_demo(out: Path, keep_service: bool) -> int:
    """Every chapter, then the page."""
    begun = time.monotonic()
    with start_private_ray(RAY_SLOTS) as scene:
        story = DemoState(out, scene, SimulatedClients(find_free_ports(1)[0]))
        for place, title in enumerate(CHAPTERS, 1):
            print(f"[{place}/{len(CHAPTERS)}] {title} ...", flush=True)
            print(*(f"      {line}" for line in run_chapter(story, title)), sep="\n", flush=True)
        story.story["seconds"] = time.monotonic() - begun
        write_json(out / STORY_FILE, story.story)
        print(*write_summary_page(out), sep="\n", flush=True)
        if keep_service:
            print(f"\nthe service stays up at http://127.0.0.1:{story.clients.port}/ until Ctrl-C", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def run_chapter(state: DemoState, title: str) -> list[str]:
    """What is to be said of it; what it found is noted even if a later one fails."""
    start = time.monotonic()
    write_json(state.out / STORY_FILE, state.story)
    lines = CHAPTERS[title](state)
    seconds = time.monotonic() - start
    state.story["chapters"].append({"title": title, "seconds": seconds})
    return [*lines, f"({seconds:.0f} s)"]


def write_summary_page(out: Path) -> list[str]:
    """The page, what was found, and what to try next."""
    found = read_demo_records(out)
    build_index(out, out / "experiments.html")
    index = write_page(build_demo_page(found), out / "index.html")
    return [
        "",
        f"Found in {found.story['seconds']:.0f} s:",
        *(f"  {name:8}{line}" for name, line in summarize_demo(found).items()),
        f"  page    {index}",
        "",
        "Try next:",
        f"  .venv/bin/python -m jobs.sweep --workload folder --data photos --out {out.parent}/photos  # your pictures",
        f"  .venv/bin/serve run services.pages:build runs={out.parent}  # the pages of all of them, live",
        f"  .venv/bin/serve run services.app:build bundle={out / 'bundles' / 'adapted'}  # then send it a picture",
    ]


if __name__ == "__main__":
    sys.exit(main())
