"""Train one trial on a Ray cluster, with as many workers as asked.

Leaves record.json, model.safetensors and checkpoints/ in --out. The same command again
goes on where the run was cut off, or says that it is finished.
"""

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Annotated, Any

import ray.train
import tyro

from dashboards import reports as pages
from dashboards.page import written
from equipoise.config import Trial
from equipoise.runs import folder as runs
from equipoise.runs.record import Lap, Record, noise_scale
from equipoise.storage import atomic as store
from equipoise.storage import object_store as url
from equipoise.storage.object_store import Away, Url
from equipoise.training.finetune import PUBLISHED, begun, frozen, learned
from equipoise.workloads import Workload, workload
from jobs.cli import plan_options as planned
from jobs.cli.paths import Given, require_plain, unusable
from jobs.cli.progress import following
from jobs.cluster import resources as cluster
from jobs.cluster import wait as room
from jobs.ray_train import arrow_filesystem as storage
from jobs.ray_train import checkpoints
from jobs.ray_train.run_channel import JOURNAL, STOP_FILE
from jobs.ray_train.trainer import Trainer
from jobs.ray_train.worker import worker

RESTARTS = 3  # of the group of workers, each from the last checkpoint; losing a node to its owner is not counted
RESIZE_SECONDS = 20.0  # how often an elastic run looks for more workers; Ray learns of new nodes no oftener
GOES_ON = "the same command goes on once it does"
STOPPED = 143  # the exit status of a process that SIGTERM ended


class Span(int):
    """A number of workers, and the fewest to go on with when some are lost."""

    fewest: int

    @classmethod
    def read(cls, text: str) -> "Span":
        """From `4`, or `1:4`."""
        fewest, _, most = text.rpartition(":")
        span = cls(most)
        span.fewest = int(fewest or most)
        if not 1 <= span.fewest <= span:
            raise ValueError(f"workers must be at least 1, and a range must rise, got {text}")
        return span


SPAN = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N|FEWEST:N",
    instance_from_str=lambda texts: Span.read(texts[0]),
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)


@dataclass(frozen=True, kw_only=True)
class Asked(Trial):
    __doc__ = __doc__

    workers: Annotated[int, SPAN] = 1
    """processes that share every global batch; 1:4 goes on with as few as 1 when nodes are lost"""
    out: Given
    """folder or URL for the record, the model and checkpoints; with several nodes, one that all of them reach"""
    plan: Given | None = None
    """take workers, batch, accumulation and learning rate from this plan.json, or from the folder of a sweep"""

    def trial(self) -> Trial:
        """What is asked, without where to put it."""
        asked = {field.name: getattr(self, field.name) for field in fields(Trial)}
        return Trial(**{**asked, "workers": int(self.workers)})

    @property
    def fewest(self) -> int:
        """Workers without which the run waits."""
        return self.workers.fewest if isinstance(self.workers, Span) else self.workers


def main() -> int:
    """Exit status: 0 ended as it should, 1 failed, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(Asked)
    try:
        require_plain(asked.out, asked.plan)
        cluster.note_place(asked.out)
        asked = planned.followed(asked)
        trial, out = asked.trial(), asked.out.absolute()
        require_urls(trial, out)
        if record := runs.finished(out, trial):
            print(f"{out} holds this trial, and it has ended: nothing to do")
        else:
            record = train(trial, out, asked.fewest)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ray.train.TrainingFailedError, Away) as error:
        print(f"error: {failure(error)}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the training began", file=sys.stderr)
        return STOPPED
    if record is None:
        print(f"stopped; the same command goes on from the last checkpoint in {out}")
        return STOPPED
    print(summary(record, out))
    try:
        print(f"  page       {leave_page(record, out)}")
    except OSError as error:
        print(f"note: no page was written: {unusable(error)}", file=sys.stderr)
    return 1 if record.ended.startswith("failed") else 0


def train(trial: Trial, out: Path, fewest: int | None = None) -> Record | None:
    """The record of `trial`, trained on the cluster into `out`; None if it was stopped."""
    made = workload(trial)  # made here too, so that what is wrong with it is known at once
    if beginning := begins(trial, made):
        print(beginning, flush=True)
    runs.require_writable(out)
    before = checkpoints.last_lap(out, made.model)
    cluster.connect()
    _, gpu = cluster.require_slots(fewest or trial.workers, trial.threads)
    with runs.claimed(out, trial):
        start = f"going on after step {before.step}" if before else "from the start"
        print(f"{cluster.place()}: {start}, once its workers are up ({trial.workers} asked for)", flush=True)
        needs = fewest or trial.workers, trial.threads, gpu
        room.wait_for(*needs)
        facts = fitted(trainer(trial, out, needs[0], gpu), out, made.cap(trial), before, room.Lost(*needs))
        if facts is None:
            return None
        store.write_json(out / "record.json", facts)
        return Record.from_json(facts)


def require_urls(trial: Trial, out: Path) -> None:
    """Refuse URLs that hold secrets, and one to which nothing can be written, before anything of them is kept."""
    require_plain(trial.init, trial.data, out)
    if isinstance(url.place(trial.data), Url):
        raise ValueError(f"--data takes a folder, {trial.data} is a URL: copy what it holds to where all nodes see it")
    if isinstance(out, Url):
        runs.require_put(out)


def fitted(trainer: Trainer, out: Path, cap: int, before: Lap | None, lost: room.Lost) -> dict[str, Any] | None:
    """What the workers return, their progress shown meanwhile."""
    seen = before.seen if before else 0
    with ThreadPoolExecutor(1) as pool, following(out / JOURNAL, cap, seen) as progress, stopping(out / STOP_FILE):
        running = pool.submit(trainer.fit)
        while wait([running], timeout=0.2).not_done:
            progress.look()
            lost.look()
    facts: dict[str, Any] | None = running.result().return_value
    return facts


def trainer(trial: Trial, out: Path, fewest: int, gpu: bool) -> Trainer:
    """Ray Train's side: where workers run, what is kept, how often a lost group starts again."""
    return Trainer(
        worker,
        train_loop_config={"trial": asdict(trial), "places": placed(trial), "out": str(out)},
        scaling_config=ray.train.ScalingConfig(
            num_workers=trial.workers if fewest == trial.workers else (fewest, trial.workers),
            use_gpu=gpu,
            resources_per_worker={"CPU": trial.threads, **({"GPU": 1} if gpu else {})},
            elastic_resize_monitor_interval_s=RESIZE_SECONDS,
        ),
        run_config=ray.train.RunConfig(
            name=checkpoints.FOLDER,
            **storage.of(out),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            failure_config=ray.train.FailureConfig(
                max_failures=RESTARTS, controller_failure_limit=cluster.patience(fewest < trial.workers)
            ),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
            callbacks=[GivesUp()],
        ),
    )


def placed(trial: Trial) -> dict[str, Any]:
    """What of `trial` names a file here, as workers find it from their own working directory."""
    start = trial.init if trial.init in (None, PUBLISHED) else str(url.place(trial.init).absolute())
    return {"data": str(Path(trial.data).absolute()), "init": start}


def begins(trial: Trial, made: Workload) -> str:
    """What the model starts from, in words; refuses what it cannot start from."""
    model, classes = made.model(), list(made.classes)
    frozen(model, trial.freeze)
    if (before := learned(trial)) is None:
        return ""
    same = begun(model, before, classes, trial.reuse)
    known = f": {', '.join(same)}" if same else ""
    return f"starting from {before.origin}, with the classifier's rows of {len(same)} of {len(classes)} classes{known}"


class GivesUp(ray.train.UserCallback):
    """Ends a run whose worker found the store away: it has waited, and a group that starts again would wait anew."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """What is raised here Ray does not try again."""
        for error in worker_exceptions.values():
            if (found := away(error)) is not None:
                raise found


def away(error: BaseException | None) -> Away | None:
    """The store's absence behind an error, however Ray wrapped it."""
    while error is not None and not isinstance(error, Away):
        inside = [getattr(error, name, None) for name in ("_base_exc", "controller_failure", "cause")]
        error = next((one for one in inside if isinstance(one, BaseException)), error.__cause__)
    return error


@contextmanager
def stopping(word: Path) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask the workers to leave a checkpoint and end; entered after `ray.init`, which sets its own.

    A second signal ends the job at once.
    """
    word.unlink(missing_ok=True)
    leaving: list[Thread] = []

    def ask(number: int, _: FrameType | None) -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        leaving.append(Thread(target=left, args=(word,)))  # a store may take its time, and this interrupts all else
        leaving[0].start()
        print("stopping: the workers leave a checkpoint first", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        if leaving:
            leaving[0].join()
            with suppress(OSError, ValueError), url.at_once():  # the next command takes it away if this one cannot
                word.unlink(missing_ok=True)


def left(word: Path) -> None:
    """The word, where it can be left; where not, the run ends by itself as soon as it needs the store."""
    with suppress(OSError, ValueError):
        word.touch()


def failure(error: BaseException) -> str:
    """Why a run ended before its time, in a sentence."""
    if (found := away(error)) is not None:
        return f"{found}: {GOES_ON}"
    return f"training was given up, at last by: {cause(error)}; the same command goes on from its last checkpoint"


def cause(error: BaseException) -> str:
    """The last line of what a worker raised, for people; Ray's log has the rest."""
    failures = list(getattr(error, "worker_failures", {}).values())
    lines = str(failures[0] if failures else error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def leave_page(record: Record, out: Path) -> Path:
    """The record as a page that opens without network."""
    return written(pages.of_run(record), out / "run.html")


def summary(record: Record, out: Path) -> str:
    """The record in a few lines."""
    trial = record.trial
    crossed = f"{record.examples_to_target:,.0f} examples" if record.examples_to_target else "not reached"
    noise = noise_scale(record.laps)
    return "\n".join(
        [
            f"{trial.workload}: {trial.workers} worker{'s' * (trial.workers > 1)} x {trial.batch} x {trial.accumulate}"
            f" = {trial.global_batch} examples a step, lr {trial.lr:g}, seed {trial.seed}",
            f"  ended      {record.ended} after {record.laps[-1].seen if record.laps else 0:,} examples"
            f" in {record.seconds:.1f} s of training ({record.examples_per_second:,.0f} examples/s)",
            f"  target     {record.target:g} on validation: {crossed}",
            f"  test       {'not taken' if record.test is None else format(record.test, '.4f')}",
            f"  noise      {'not measurable' if noise is None else f'about {noise:,.0f} examples'}",
            f"  record     {out / 'record.json'}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
