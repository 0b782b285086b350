"""Texts of the page of file formats that are not in the code: when each file is written, by whom, what may change."""

from dataclasses import dataclass

from docs.generate.markdown import make_anchor

FILES_INTRODUCTION = """\
Jobs, services and pages share files, and nothing else. Each file is written under a temporary name and renamed, so that
a reader never sees half of one. JSON is standard: numbers that are not finite do not occur, and a value that is unknown
is null, or its key is missing.

Files that outlive the version that wrote them carry a `schema` number. A reader refuses a file with another number, and
says what to do. Keys may be added without a new number, and readers ignore keys that they do not know; a key that
changes its meaning, or goes away, raises the number. The columns of the CSV tables stay as they are. Other files
without a number are read by the version that wrote them."""


@dataclass(frozen=True)
class FileText:
    """Heading of a file, who writes it, and its introduction."""

    title: str
    writer: str
    text: str

    @property
    def anchor(self) -> str:
        """Anchor of the heading, for links on the page."""
        return make_anchor(self.title)


TEXTS = {
    "record.json": FileText(
        "record.json",
        "`train`, `sweep`, `observe`",
        "The record of one training run: its options, every lap, and how it ended. `equipoise train` writes it to"
        " `--out` when the run ends. `equipoise sweep` writes one for each trial as `trials/batch-B-lr-R-seed-S.json`,"
        " for trials with other ways of exchange than exact sums in `trials/exchanges/`, and one for the confirmation"
        " run. It is not changed afterwards, except that a trial in progress writes it again and again.",
    ),
    "trial.json": FileText(
        "trial.json",
        "`train`, `sweep`, `observe`",
        "The options of a run or sweep, written to its folder before anything else, so that the same command can resume"
        " it and another one is refused. The keys are the fields of [`TrainConfig`](python-api.md#trainconfig).",
    ),
    "laps.jsonl": FileText(
        "laps.jsonl",
        "`train`, `observe`",
        "The laps of a run in progress, one line of JSON each, for pages and trackers. While the run goes on, the last"
        " line may be incomplete. The keys are those of [`Lap`](#lap).",
    ),
    "arrivals.jsonl": FileText(
        "arrivals.jsonl",
        "`train`",
        "The log of arrivals of a run with `--sync async:S`, one line of JSON for each lap, from which `equipoise"
        " replay` computes the weights again. It is written when the run ends; until then each checkpoint has the log"
        " up to its own lap. A push is a list of its three numbers. With n workers requested, ticket t stands for the"
        " micro-batches of worker t % n in the global batch t // n, both counted from 0.",
    ),
    "misclassified.json": FileText(
        "misclassified.json",
        "`train`",
        "A list of up to 12 test images that the model of a run classifies wrongly, for the page of the run. It is"
        " written when the run ends; a run whose metric is not the accuracy has none.",
    ),
    "system.csv": FileText(
        "system.csv",
        "you, `sweep`, or `observe`",
        "Step times for `equipoise plan --system`: a row for each number of workers and batch size, without gradient"
        " accumulation. A sweep writes it again whenever it has timed more; `equipoise.observe` writes the row of its"
        " run. Other columns are kept and not read. Rows of different devices, exchanges and rates are fitted"
        " separately: see [How a sum travels](../explanation/how-a-sum-travels.md).",
    ),
    "exchange.csv": FileText(
        "exchange.csv",
        "you, or `sweep`",
        "Times of exchanges with nothing else running, for `equipoise plan --exchange`. A sweep writes none where"
        " gradients are so small that they go to all workers at once. Other columns are ignored.",
    ),
    "statistical.csv": FileText(
        "statistical.csv",
        "you, or `sweep`",
        "Examples to the target for `equipoise plan --statistical`: a row for each training run. A sweep writes a row"
        " for each trial that ended. Other columns are ignored.",
    ),
    "targets.csv": FileText(
        "targets.csv",
        "`sweep`",
        "Examples to each of several targets of a sweep, the easiest first: a row for each trial and target, where the"
        " trial's metric crossed it. Trials run to the last target, and `statistical.csv` has that one alone. A trial"
        " that was cut off has rows for the targets that it had passed. A sweep to a single target does not write the"
        " file.",
    ),
    "links.csv": FileText(
        "links.csv",
        "you, or `links`",
        "Times of sums by each all-reduce algorithm, for `equipoise plan --algorithms`: a row for each algorithm and"
        " size. Rows of `backend` are left out there, because how it sums is not known. Other columns are ignored.",
    ),
    "links.json": FileText(
        "links.json",
        "`links`",
        "The rows of `links.csv`, with delay and rate of each level of the network and what was counted: all that the"
        " page shows.",
    ),
    "plan.json": FileText(
        "plan.json",
        "`plan`, `sweep`",
        "The plan, the fits behind it, and everything that was predicted. `equipoise plan` and `equipoise sweep` write"
        " it; a sweep writes it again after each run that confirms or refutes it. `equipoise train --plan` reads it."
        " Parts are null where what they need was not measured, and `warnings` then say what to measure.",
    ),
    "memory.json": FileText(
        "memory.json",
        "`sweep`",
        "What a worker needs over its batch by part, as a sweep with `--memory` predicts it, and the peaks that it"
        " measured: of whole models, and of the sharding of its plan. The page of the plan draws it.",
    ),
    "recipes.json": FileText(
        "recipes.json",
        "`sweep`",
        "What each recipe does to the examples to the target and to the critical batch, as a sweep with `--recipes`"
        " finds it, and the recipe that its plan is made with. Beside it is `recipes.csv`, with the rows of"
        " `statistical.csv` of all recipes and a column `recipe`; their trials are in `trials/recipes/`.",
    ),
    "search.json": FileText(
        "search.json",
        "`sweep`",
        "What the search of a sweep tries and why, and how its best settings stand. A sweep into a folder on this"
        " machine writes it anew whenever a trial begins or ends; its page shows it.",
    ),
    "profile.json": FileText(
        "profile.json",
        "`profile`",
        "Where the time of a step goes, and what would shorten it: seconds by part, layer and line of code, and"
        " proposals with their predicted and measured gains. Parts of seconds are means of a step.",
    ),
    "comparison.json": FileText(
        "comparison.json",
        "`compare-devices`",
        "Steps of one worker beside those of several that share its batch, predicted and measured, and from which batch"
        " on several take less time.",
    ),
    "bundle.json": FileText(
        "bundle.json",
        "`publish`, `adapt`",
        "The manifest of a bundle: what the model is, how well it does, and the digest of every file beside it. A"
        " bundle never changes: loading refuses one whose files differ from their digests. The folder also holds"
        " `weights.safetensors`, the program `program.json`, where it can be exported `model.onnx`,"
        " [`reference.npz`](#referencenpz) and the card `card.md`. `remedy` is a [`DriftCondition`](#driftcondition),"
        " and `plan` a [plan](#planjson).",
    ),
    "reference.npz": FileText(
        "reference.npz",
        "`publish`, `adapt`",
        "The reference split of a bundle as the model saw it, and the profile that requests are compared with. It is a"
        " NumPy archive without pickles. The arrays below `drift.` are missing if the bundle was published with"
        " `--no-drift`; the service then reports `unknown`. A bundle is published again after a change of these arrays,"
        " which belong to the version that wrote them. A bundle of a table has `values` instead of `logits` where the"
        " label is a number, and arrays `input.NAME` instead of `pictures`, with the tensors that `bundle.json`"
        " declares; one of texts has `logits`, `input.tokens` and `places` alone, of 16 windows. The profile of a table"
        " or of texts also has arrays `drift.encoder.NAME`, with which rows and texts become statistics.",
    ),
    "model.json": FileText(
        "model.json",
        "`export-page`",
        "What a page in the browser needs to know about the model that it runs: classes, and how a picture becomes its"
        " input."
        " Beside it lie `model.onnx`, as in the bundle, and the page itself.",
    ),
    "verdict.json": FileText(
        "Verdicts",
        "`check`, the service",
        "`equipoise check --out` writes a [`DatasetVerdict`](#datasetverdict) as `verdict.json`, and prints it with"
        " `--json`. The service answers `GET /drift` with a [`StreamVerdict`](#streamverdict); an alarm posted to a"
        " webhook holds the same keys. `equipoise adapt --verdict` reads both. The keys `state` and `cause` and the"
        " names of causes do not change.",
    ),
    "captures": FileText(
        "Captures",
        "the service",
        "A request kept for labelling is two files in `capture_dir`: `POOL-KEY-ID.png` with the image as the model took"
        " it, and `POOL-KEY-ID.json` with what follows. Of a request to a detector the image is the picture that was"
        " sent, upright and at most 1,280 pixels wide or high, and boxes are in its pixels. With a label both get new"
        " names, which end in `-labelled`. Captures without a label are removed as others take their place, unless an"
        " empty file `POOL-KEY-ID.held` says that somebody has opened them on the page of `equipoise label`. The"
        " samples in `traffic-VERSION` and `usual-VERSION` hold what the model took.",
    ),
    "labels": FileText(
        "Labels",
        "`equipoise label`",
        "The labels of the picture `aisle/1.jpg` are the file `aisle/1.jpg.json` in `--out`, which is replaced as a"
        " whole. A picture has either `boxes` or a `label`; the other key is left out. `classes.json` beside them has"
        " the `kind` of all labels, `boxes` or `class`, and the `classes` in the order of their number keys.",
    ),
}
EXCHANGE_VALUES = "a name of up to 100 characters or empty"
EXCHANGE_MEANINGS = {
    "exchange": "way of exchange as `sync/compression/all-reduce/servers`, such as `local:8/bf16` or"
    " `async:4/servers:2`; empty for exact sums of the gradient in every step; another name is an opaque label",
    "sent_bytes": "bytes that leave a worker in a step, averaged over the steps from one exchange to the next",
    "encode_seconds": "seconds of a step that compression takes",
    "bits_per_second": "rate of the slowest link",
    "joules": "energy of a step of all workers, from which the energy to the target is predicted",
    "peak_bytes": "most bytes in the tensors of a worker; with `--memory`, no plan needs more",
}
DEVICE_VALUES = "a name of up to 60 characters or empty"
STEP_DEVICE_MEANING = "kind of worker, such as `a10`; each has at least two rows; empty for workers without a name"
NETWORK_DEVICE_MEANING = "kind of worker, as in `system.csv`, whose network was timed; empty for that of all kinds"
RUN_EXCHANGE_MEANINGS = {
    "exchange": "way of exchange of the run, as in `system.csv`; empty for exact sums",
    "workers": "workers of the run; a plan with another exchange than exact sums then has this number of workers",
    "momentum": "momentum of the run, where it is not that of the runs with exact sums; the plan then sets it",
}
STATISTICAL_MEANINGS = {
    "global_batch": "examples per optimizer step of all workers",
    "lr": "learning rate",
    "seed": "seed of the run",
    "examples": "examples seen until the target was reached, or until the run stopped at its cap",
    "reached": "1 if the target was reached, else 0",
}
TARGETS_MEANINGS = {"target": "value of the validation metric", **STATISTICAL_MEANINGS}
NPZ_ARRAYS = {
    "logits": "(images, classes) scores of the model on the reference split, before the softmax",
    "features": "(images, features) input of the classifier",
    "scores": "(images, boxes) scores of what a detector finds in the reference split, from high to low",
    "boxes": "(images, boxes, 4) left, top, width and height of these boxes, in pixels of the input",
    "labels": "(images,) index of the true class; of a detector (images, boxes) the class of each box that it finds",
    "pictures": "(kept images, channels, height, width) images kept for comparison, uint8",
    "places": "(kept images,) index of each kept image in the reference split",
    "drift.why not": "reason why there is no profile, instead of all other arrays below `drift.`",
    "drift.figures": "(charted statistics,) names of the charted statistics",
    "drift.temperature": "divisor of the logits that makes the scores calibrated",
    "drift.schema.kind": "kind of data: `image`, `table`, `text` or `boxes`",
    "drift.schema.has_accuracy": "whether the classes are labels; false where they are bins of a number",
    "drift.directions": "directions of the random Fourier features",
    "drift.ranked": "(charted statistics, images) scores of the reference, sorted for each statistic",
    "drift.wider": "how far the sampling error of the reference may move a mean rank",
    "drift.verified": "false alarms counted on held-out images: images per false alarm requested, images, alarms,"
    " held-out images; missing if they were not counted",
}
"""arrays of reference.npz that are no field of a class"""
