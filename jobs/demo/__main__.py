"""Run the whole workflow on built-in data: sweep, plan, train, publish, serve, detect a drift and adapt to it.

With --act detection it is about a detector: train, publish, serve, detect a drift, draw boxes on the labelling page
and adapt to them. Every chapter runs the commands that a user would give, on a private Ray cluster, while simulated
clients send images. It takes a few minutes and leaves its records, logs and pages in --out; start at --out/index.html.
It does not resume: the same command replaces what an earlier demo left there.

Exit status: 0 done; 1 a chapter failed; 2 wrong options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from dashboards.build import build_index
from dashboards.demo_report import build_demo_page, is_demo_folder, read_demo_records, summarize_demo
from dashboards.demo_story import STORY_FILE, ChapterTime, DemoStory
from dashboards.page import write_page
from equipoise.command_line import command
from equipoise.errors import CommandFailed, EquipoiseError
from equipoise.runs.folder import LOCK_FILE_NAME, lock_folder
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath
from jobs.cluster.private_ray import start_private_ray
from jobs.cluster.processes import find_free_ports
from jobs.demo.chapters import CHAPTERS
from jobs.demo.demo_state import DemoState
from jobs.demo.detection_chapters import DETECTION_CHAPTERS
from jobs.demo.service_clients import ServiceClients
from jobs.demo.shelf_clients import ShelfClients
from jobs.demo.traffic import SimulatedClients

RAY_SLOTS = 2
CHAPTERS_BY_ACT = {"pictures": CHAPTERS, "detection": DETECTION_CHAPTERS}
CLIENTS_BY_ACT: dict[str, type[ServiceClients]] = {"pictures": SimulatedClients, "detection": ShelfClients}
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    __doc__ = __doc__

    out: LocalPath = Path("runs/demo")
    """folder for all that it writes; one that holds an earlier demo is emptied first"""
    act: Literal["pictures", "detection"] = "pictures"
    """pictures of one product each, or detection of each product on a shelf"""
    keep: bool = False
    """keep the service running at the end, until Ctrl-C"""


@command(on_stop="stopped: nothing is left running")
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(DemoOptions)
    require_local_paths({"--out": options.out})
    for number in STOP_SIGNALS:
        # nohup ignores SIGHUP on purpose; a script's `&` ignores SIGINT, which must end the demo all the same
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, raise_keyboard_interrupt)
    out = options.out.absolute()
    require_demo_folder(out)
    with lock_folder(out):
        try:
            clear_demo_folder(out)
            return run_demo(out, options)
        except (CommandFailed, EquipoiseError, OSError) as error:
            raise CommandFailed(f"the demo failed: {error}") from error


def raise_keyboard_interrupt(_number: int, _: FrameType | None) -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, and ignore further signals while the demo is shutting down."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def require_demo_folder(out: Path) -> None:
    """Create the output folder; refuse one that holds something other than a demo."""
    with report_path_errors(f"cannot write to --out {out}", "choose another folder"):
        if out.exists() and not out.is_dir():
            raise EquipoiseError("path-kind", f"cannot use --out {out}: it is a file", "choose a folder")
        out.mkdir(parents=True, exist_ok=True)
        others = {file.name for file in out.iterdir()} - {LOCK_FILE_NAME}
    if others and not is_demo_folder(out):
        raise EquipoiseError(
            "path-in-use", f"cannot use --out {out}: it is not empty and holds no demo", "choose another folder"
        )


def clear_demo_folder(out: Path) -> None:
    """Remove what an earlier demo left in the folder, and start an empty story."""
    for file in out.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        elif file.name not in (LOCK_FILE_NAME, STORY_FILE):  # the story marks the folder as ours until overwritten
            file.unlink()
    (out / "logs").mkdir()
    DemoStory.empty().write(out)


def run_demo(out: Path, options: DemoOptions) -> int:
    """Run every chapter, write the page and return the exit status."""
    start, chapters = time.monotonic(), CHAPTERS_BY_ACT[options.act]
    with start_private_ray(RAY_SLOTS) as private_ray:
        state = DemoState(out, private_ray, CLIENTS_BY_ACT[options.act](find_free_ports(1)[0]))
        state.story.act = options.act
        for number, title in enumerate(chapters, 1):
            print(f"[{number}/{len(chapters)}] {title} ...", flush=True)
            lines = run_chapter(state, title, chapters[title])
            print(*(f"      {line}" for line in lines), sep="\n", flush=True)
        state.story.seconds = time.monotonic() - start
        state.story.write(out)
        print(*write_summary_page(out), sep="\n", flush=True)
        if options.keep:
            print(f"\nthe service keeps running at http://127.0.0.1:{state.clients.port}/ until Ctrl-C", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def run_chapter(state: DemoState, title: str, chapter: Callable[[DemoState], list[str]]) -> list[str]:
    """Run a chapter, record its title and seconds, and return its lines for the terminal.

    The story is saved first, so that the results of earlier chapters survive a failure of this one.
    """
    start = time.monotonic()
    state.story.write(state.out)
    lines = chapter(state)
    seconds = time.monotonic() - start
    state.story.chapters.append(ChapterTime(title=title, seconds=seconds))
    return [*lines, f"({seconds:.0f} s)"]


def write_summary_page(out: Path) -> list[str]:
    """Write the pages and return the closing lines: the results and what to try next."""
    records = read_demo_records(out)
    build_index(out, out / "experiments.html")
    index = write_page(build_demo_page(records), out / "index.html")
    return [
        "",
        f"Results after {records.story.seconds:.0f} s:",
        *(f"  {name:8}{line}" for name, line in summarize_demo(records).items()),
        f"  page    {index}",
        "",
        "Try next:",
        *(f"  {line}" for line in list_next_commands(out, records.story.act)),
    ]


def list_next_commands(out: Path, act: str) -> list[str]:
    """Return the commands to try after an act."""
    pages = f".venv/bin/serve run services.pages:build runs={out.parent}  # live pages of all runs"
    serve = f".venv/bin/equipoise serve bundle={out / 'bundles' / 'adapted'}  # then send it an image"
    if act == "detection":
        train = f"--workload boxes --data photos --out {out.parent}/photos  # your labelled pictures"
        return [
            ".venv/bin/equipoise label --images photos --out labels  # your pictures, then export them",
            f".venv/bin/equipoise train {train}",
            serve,
        ]
    sweep = f"--workload folder --data photos --out {out.parent}/photos  # your images"
    return [f".venv/bin/equipoise sweep {sweep}", pages, serve]


if __name__ == "__main__":
    sys.exit(main())
