"""Publish the model of a run as a bundle: a folder that services load, and that answers without the training code.

The model is exported, every engine is timed and compared with PyTorch's eager one, and the fastest that answers the
same is recorded, with what the model is, how well it does, and what later requests are compared with.
"""

import platform
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from equipoise.bundle import bundle, engines
from equipoise.bundle import engine_benchmark as contest
from equipoise.bundle import evaluation as judged
from equipoise.bundle import graph as program
from equipoise.bundle.engine_benchmark import Result
from equipoise.bundle.engines import Engine, Served
from equipoise.bundle.evaluation import Judged
from equipoise.config import Trial
from equipoise.drift.profiling import build_profile as publishing
from equipoise.hardware import machine
from equipoise.runs import folder as runs
from equipoise.runs.record import Record
from equipoise.storage import atomic as store
from equipoise.storage.object_store import Away
from equipoise.training.finetune import head_of
from equipoise.workloads import Split, Workload, workload
from jobs.cli.paths import Given, require_plain, unusable
from jobs.publishing.model_card import card

MOST_COMPARED = 1000  # pictures of the test split on which engines are compared
MOST_WATCHED = 20_000  # pictures of the reference from which drift is told
MOST_KEPT = 200  # pictures of the reference that travel with the bundle, to be shown beside others
PROGRAMS = {"program.json", "weights.safetensors"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    run: Given
    """folder or URL of a finished run"""
    out: Given
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """of the model in the service; the workload's if not given"""
    plan: Given | None = None
    """plan.json that the run was made by"""
    drift: bool = True
    """find out what requests without drift look like, and what each cause of drift would do: it takes half a minute"""
    native: bool = True
    """time AOTInductor's native code beside the engines: it takes a compiler and about a minute"""


def main() -> int:
    """Exit status: 0 published, 1 storage stayed away, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(Asked)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is taken away
    try:
        publish(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: nothing was published", file=sys.stderr)
        return 143
    except Away as error:
        print(f"error: {error}: nothing was published", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    return 0


def publish(asked: Asked, more: dict[str, Any] | None = None) -> None:
    """The whole way from a run to a bundle; `more` facts are of who asks for it, in silence."""
    if asked.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", asked.name):
        raise ValueError(f"--name {asked.name!r} cannot stand in an address: use letters, digits, dots and dashes")
    require_plain(asked.run, asked.plan, asked.out)
    record = finished(asked.run)
    plan = planned(asked.plan)
    with store.folder(asked.out.absolute(), last=bundle.FACTS) as folder:
        made = workload(record.trial)
        served = Served(*trained(asked.run, made), made.mean, made.std).eval()
        export(served, example(made.test), folder)
        results = compared(served, made.test, folder, asked.native)
        engine, why = contest.winner([one for one in results if one.engine in engines.ENGINES])
        parts = {part: getattr(made, part) for part in PARTS} | {"apart": made.apart or made.validation}
        answers = {part: answered(engines.ENGINES[engine](folder), split) for part, split in parts.items()}
        heat = judged.temperature(*answers["validation"][::2])
        found = judged.judged(*answers["test"][::2], list(made.classes), heat)
        kept = reference(made, answers["reference"], heat)
        if asked.drift:
            usual, apart = (told(parts[part], *answers[part]) for part in ("reference", "apart"))
            kept |= publishing.arrays(engines.ENGINES[engine](folder), usual, heat, apart)
        np.savez_compressed(folder / bundle.REFERENCE, **kept)
        facts = described(asked, record, made, found, results) | {"engine": engine_facts(engine, why, results)}
        facts |= more or {}
        (folder / bundle.CARD).write_text(card(facts | {"plan": plan}), encoding="utf-8")
        bundle.sealed(folder, facts | {"plan": plan})
    if more is not None:
        return
    print(table(results))
    print(f"{asked.out}: {engine}, for {why}; accuracy {found.accuracy:.4f} on the test split")
    if record.ended != "reached":
        print(
            f"note: the run did not reach its target of {record.target:g} (it ended: {record.ended})", file=sys.stderr
        )


PARTS = ("validation", "reference", "test")


def planned(path: Path | None) -> Any:
    """The plan of a file, or of the folder of a sweep."""
    if path is None:
        return None
    file = path / "plan.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"--plan {path} is not there: give the plan.json of a sweep or of jobs.plan")
    facts = store.read_json(file)
    if not isinstance(facts, dict) or not isinstance(facts.get("plan"), dict):
        raise ValueError(f"--plan {path} recommends no plan: give the plan.json of a sweep or of jobs.plan")
    return facts


def finished(run: Path) -> Record:
    """The record of a run that has a model."""
    for name in ("record.json", "model.safetensors"):
        if not (run / name).is_file():
            raise ValueError(f"--run {run} has no {name}: give the folder of a run that has ended")
    record = runs.read(run / "record.json")
    if record.ended.startswith("failed"):
        raise ValueError(f"--run {run} {record.ended}: give one that has ended well")
    return record


def trained(run: Path, made: Workload) -> tuple[nn.Module, str | None]:
    """The run's model, and the layer before which its features are taken, if it has one."""
    model = made.model()
    try:
        with store.fetched(run / "model.safetensors") as file:
            model.load_state_dict(load_file(file))
    except (RuntimeError, ValueError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ValueError(f"--run {run} does not hold the weights of {made.name}'s model ({reason})") from None
    try:
        return model.float().eval(), head_of(model, len(made.classes))
    except ValueError:
        return model.float().eval(), None


def example(split: Split) -> Tensor:
    """Two pictures to export the model with."""
    return pictures(split, 2)


def pictures(split: Split, most: int) -> Tensor:
    """Up to `most` pictures, evenly over the split."""
    return torch.stack([split.pictures[int(index)] for index in evenly(split, most)])


def evenly(split: Split, most: int) -> NDArray[np.int64]:
    """Up to `most` places, evenly over the split."""
    return np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64)


def export(served: Served, some: Tensor, folder: Path) -> None:
    """Write the model's programs and weights."""
    try:
        found = program.exported(served, some)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"the model cannot be exported ({type(error).__name__}: {reason})") from error
    store.write_json(folder / engines.PROGRAM, program.to_json(found))
    save_file(program.weights(found), folder / engines.WEIGHTS)
    (folder / engines.WEIGHTS).chmod(0o644)  # safetensors keeps files to their owner
    with quiet():
        try:
            onnx: Any = torch.onnx.export(found, (), None, dynamo=True, verbose=False)
            onnx.save(str(folder / engines.ONNX))
        except Exception as error:  # the exporter raises what it likes; the other engines do without it
            (folder / engines.ONNX).unlink(missing_ok=True)
            print(
                f"note: the model is not in ONNX ({type(error).__name__}: {str(error).strip()[:200]})", file=sys.stderr
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' remarks on their own insides."""
    import logging
    import warnings

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compared(served: Served, test: Split, folder: Path, native: bool) -> list[Result]:
    """All engines on the test split; AOTInductor is timed beside them, and never shipped: it is native code."""
    some = pictures(test, MOST_COMPARED)

    @torch.inference_mode()
    def truth(batch: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = served(batch)
        return logits, features

    makers: dict[str, Callable[[], Engine]] = {name: partial(make, folder) for name, make in engines.ENGINES.items()}
    with tempfile.TemporaryDirectory() as scratch:
        if native:
            makers["aotinductor"] = partial(compiled, served, some, Path(scratch))
        return contest.contest(makers, truth, some)


def compiled(served: Served, some: Tensor, scratch: Path) -> Engine:
    """The model as native code by AOTInductor, for the comparison."""
    with quiet():
        path = torch._inductor.aoti_compile_and_package(
            program.exported(served, some[:2]), package_path=str(scratch / "model.pt2")
        )
        run = torch._inductor.aoti_load_package(path)

    def engine(batch: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            logits, features = run(batch)
        return logits, features

    return engine


def answered(engine: Engine, split: Split) -> tuple[Any, Any, Any]:
    """Scores before softmax, features and labels of a split."""
    parts = [
        engine(torch.stack([split.pictures[int(i)] for i in chunk])) for chunk in torch.arange(len(split)).split(64)
    ]
    logits, features = (torch.cat([part[place] for part in parts]).numpy() for place in (0, 1))
    return logits, features, split.labels.numpy()


def reference(made: Workload, answers: tuple[Any, Any, Any], heat: float) -> dict[str, Any]:
    """What later requests are compared with: the model's answers on examples it has not learned from."""
    logits, features, labels = answers
    return {
        "logits": logits.astype(np.float32),
        "features": features.astype(np.float32),
        "labels": labels,
        "temperature": np.float64(heat),
        "confusion": judged.confusion(logits, labels, len(made.classes)),
        "pictures": pictures(made.reference, MOST_KEPT).numpy(),
        "places": evenly(made.reference, MOST_KEPT),
    }


def told(split: Split, logits: Any, features: Any, labels: Any) -> publishing.Told:
    """Of some pictures of a split."""
    some = evenly(split, MOST_WATCHED)
    held = torch.stack([split.pictures[int(index)] for index in some])
    return publishing.Told(held, logits[some], features[some], labels[some])


def described(asked: Asked, record: Record, made: Workload, found: Judged, results: list[Result]) -> dict[str, Any]:
    """The facts of bundle.json but for its engine."""
    channels, height, width = made.test.pictures[0].shape
    trial: Trial = record.trial
    return {
        "name": asked.name or made.name,
        "workload": trial.workload,
        "classes": list(made.classes),
        "input": {"type": "uint8", "channels": channels, "height": height, "width": width},
        "preprocessing": {
            "picture": "upright by EXIF, the middle square, bilinear to the input's size, RGB or grey by its channels",
            "mean": list(made.mean),
            "std": list(made.std),
        },
        "examples": {part: len(getattr(made, part)) for part in ("train", *PARTS)},
        "metrics": asdict(found),
        "trial": asdict(trial),
        "parameters": sum(value.numel() for value in made.model().parameters()),
        "target": record.target,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "ended": record.ended,
        "seen": record.laps[-1].seen if record.laps else 0,
        "machine": machine(torch.device("cpu")),
        "versions": {name: version(name) for name in ("equipoise", "torch", "torchvision", "onnxruntime", "numpy")}
        | {"python": platform.python_version()},
    }


def engine_facts(engine: str, why: str, results: list[Result]) -> dict[str, Any]:
    """The engine chosen, why, and what all of them measured."""
    return {"name": engine, "why": why, "table": [asdict(one) for one in results]}


def table(results: list[Result]) -> str:
    """The engines for people."""
    base = next(one.seconds for one in results if one.engine == contest.BASE)
    lines = [f"{'engine':22}" + "".join(f"{f'batch {batch}':>22}" for batch in contest.BATCHES) + f"{'error':>12}"]
    for one in results:
        if one.seconds is None or base is None:
            lines.append(f"{one.engine:22}  does not run here: {one.why_not}")
            continue
        cells = [f"{one.seconds[n] * 1e3:9.3f} ms {one.seconds[n] / base[n]:5.2f}x" for n in contest.BATCHES]
        lines.append(f"{one.engine:22}" + "".join(f"{cell:>22}" for cell in cells) + f"{one.error:12.1e}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
