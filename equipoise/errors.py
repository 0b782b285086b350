"""Mistakes that a user can mend, each with a stable code; every other exception is a bug of this project."""

from typing import Self

ERROR_CODES = {
    # options and arguments
    "option-range": "a number outside its allowed range",
    "option-format": "a text that cannot be parsed, such as a duration or MIN:MAX",
    "option-unknown": "an option that the command does not have",
    "option-choice": "a name that is not one of the choices",
    "option-conflict": "options that exclude or contradict each other",
    "option-missing": "a required option or argument is missing",
    # paths, stores and this machine
    "path-missing": "a file or folder that does not exist",
    "path-kind": "a file where a folder is needed, or the reverse",
    "path-exists": "a path that must be new but exists",
    "path-in-use": "a folder in which another command is writing, or that holds something else",
    "path-access": "a path that cannot be read or written",
    "disk-full": "a disk without room for what is to be written",
    "file-damaged": "a file that is not what it should be, such as invalid JSON",
    "file-permissions": "a secret file that others can read",
    "url-secret": "a URL with a password or signature in it",
    "url-format": "a malformed URL",
    "store-unsupported": "an object store that is not supported or whose package is missing",
    "store-refused": "a request that the object store refuses for good",
    "package-missing": "an optional Python package that is not installed",
    "port-in-use": "a port on which another program listens",
    "address-unusable": "a host or port on which this machine cannot listen",
    # workloads and models
    "workload-unknown": "a workload that does not exist",
    "workload-invalid": "a workload whose parts do not fit each other or the options",
    "dataset-unavailable": "a data set that is neither on this machine nor downloadable",
    "dataset-invalid": "a data set that cannot be used, such as too few images of a class",
    "model-unknown": "a model that does not exist",
    "model-invalid": "a model that does not take the images or return the scores",
    "pretrained-unavailable": "pretrained weights that cannot be found or downloaded",
    "pretrained-mismatch": "pretrained weights that do not fit the model",
    "augment-invalid": "augmentation options out of range or unusable for the images",
    "images-invalid": "a batch of images of the wrong type or shape",
    "image-undecodable": "an image file that cannot be decoded",
    "row-invalid": "a row of a table that the model cannot take",
    "text-invalid": "a text that the model cannot take",
    # runs, sweeps and plans
    "run-mismatch": "a folder that holds another run than the options ask for",
    "run-damaged": "a record or checkpoint that is damaged or of another version",
    "run-unusable": "a run that is not finished, or failed",
    "table-invalid": "a table of measurements with a wrong column or cell",
    "measurements-missing": "too few measurements for what is asked",
    "budget-too-small": "a sweep whose budget has no time for the measurements that a plan needs",
    "memory-exceeded": "no batch fits in memory",
    "plan-mismatch": "a plan measured with other data, another model or other options",
    "plan-missing": "a file without a plan, or with no recommendation",
    "plan-invalid": "a plan that cannot be applied",
    "cluster-too-small": "more workers than the cluster can hold",
    "cluster-unreachable": "a Ray cluster at whose address nothing answers",
    "cluster-file": "a cluster file that cannot be used",
    "all-reduce-unusable": "an all-reduce algorithm that these workers, their nodes or devices cannot run",
    "sharding-unusable": "a number of workers, or a model, that --sharding cannot divide",
    "compression-unusable": "a compression that the parameters of this model cannot use",
    "loop-unobservable": "a model or an optimizer whose training loop cannot be observed",
    # bundles and serving
    "bundle-missing": "a folder that is not a bundle",
    "bundle-version": "a bundle of another schema version",
    "bundle-changed": "a bundle whose files are not as published",
    "bundle-kind": "a bundle whose model takes other data, such as rows of a table where images are needed",
    "bundle-invalid": "a bundle whose manifest or program cannot be used",
    "inputs-invalid": "tensors that are not those that a bundle's program takes",
    "runtime-unavailable": "files of onnxruntime-web that are neither on this machine nor downloadable, or are others",
    "export-failed": "a model that cannot be exported",
    "engine-unknown": "an inference engine that does not exist",
    "models-incompatible": "two models that differ in images or classes",
    "tls-invalid": "a certificate or key that cannot be used",
    # a training program of the user's
    "command-unusable": "a training command that cannot be run, or that a sweep cannot measure",
    "report-invalid": "a report of a training command that cannot be used",
    # drift, captures and adaptation
    "reference-unusable": "a bundle without a reference profile that can be used",
    "verdict-invalid": "a drift verdict that cannot be read",
    "verdict-mismatch": "a drift verdict on another bundle",
    "service-unavailable": "a service that does not answer, or not as expected",
    "service-refused": "a request that a service refuses, such as one without its API key",
    "captures-empty": "a folder of captures or labels without what is needed",
    "capture-missing": "a capture that does not exist or is damaged",
    "capture-invalid": "a capture that cannot be stored",
    "labels-invalid": "labels that do not fit the captures or pictures",
    "label-conflict": "labels that somebody else has changed in the meantime",
    "class-unknown": "a class that the model does not have",
    "adaptation-impossible": "a drift to which this model cannot be adapted with what is given",
    "rollback-impossible": "no previous bundle to return to",
    "state-invalid": "a saved detector state that does not fit",
}
"""what each code stands for; a code never changes its meaning"""
FAILURE_CODES = ("disk-full", "service-unavailable")
"""codes of failures outside of a command, which ends with status 1 then, as after any other failure"""


class EquipoiseError(ValueError):
    """Mistake that the user can mend: a sentence on the problem, what to do about it, and a code from `ERROR_CODES`.

    Attributes:
        code: stable name of the kind of mistake, such as `path-exists`
        problem: what is wrong
        remedy: what to do about it; empty if the problem says it already
    """

    def __init__(self, code: str, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)  # one argument, since tyro prints args[0]
        if code not in ERROR_CODES:
            raise KeyError(f"{code!r} is not in ERROR_CODES")
        self.code, self.problem, self.remedy = code, problem, remedy

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), (self.code, self.problem, self.remedy)

    def within(self, context: str) -> Self:
        """Return the same error with the place where it occurred in front, such as a row of a file."""
        return type(self)(self.code, f"{context}: {self.problem}", self.remedy)


class CommandFailed(RuntimeError):  # noqa: N818 # an outcome rather than a mistake
    """Raised when a command cannot finish for a reason that is neither a mistake of its user nor a bug of ours."""
