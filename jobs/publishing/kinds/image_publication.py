"""Publication of models of labelled images."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from equipoise.bundle.engines import Engine
from equipoise.bundle.evaluation import choose_temperature, evaluate_predictions
from equipoise.bundle.kinds.image_input import (
    FEATURES_TENSOR,
    IMAGES_TENSOR,
    LOGITS_TENSOR,
    ImageInput,
    ImagePreprocessing,
)
from equipoise.bundle.kinds.inference_module import InferenceModule
from equipoise.workloads import ImageWorkload, Split
from jobs.publishing.kinds.publication import HeldOutFindings, Publication, add_drift_findings
from jobs.publishing.known_conditions import LearnedCondition
from jobs.publishing.reference_arrays import (
    build_drift_arrays,
    build_reference_arrays,
    find_false_alarm_split,
    predict_split,
    sample_images,
)

PHOTOGRAPH_STEPS = "upright by EXIF, center square, bilinear to the input's size, RGB or grayscale by its channels"


class ImagePublication(Publication):
    """Publication of a model of labelled images."""

    input_names = (IMAGES_TENSOR,)
    output_names = LOGITS_TENSOR, FEATURES_TENSOR

    def __init__(self, workload: ImageWorkload) -> None:
        self.workload: ImageWorkload = workload

    def wrap_model(self, model: nn.Module, head_name: str | None) -> nn.Module:
        """Return the model with its normalization in front."""
        return InferenceModule(model, head_name, self.workload.mean, self.workload.std)

    def sample_inputs(self, split: Split, max_count: int) -> tuple[Tensor, ...]:
        """Return up to `max_count` images, evenly spaced over a split."""
        return (sample_images(split, max_count),)

    def describe_inputs(self) -> dict[str, Any]:
        """Return the fields of the manifest on the images that the model takes."""
        channels, height, width = self.workload.test.inputs[0].shape
        preprocessing = ImagePreprocessing(
            picture=PHOTOGRAPH_STEPS,
            mean=[float(mean) for mean in self.workload.mean],
            std=[float(std) for std in self.workload.std],
        )
        image = ImageInput(channels=channels, height=height, width=width, preprocessing=preprocessing)
        return {"kind": "image", "image": image, "inputs": image.list_inputs()}

    def evaluate(self, run_engine: Engine, include_drift: bool, learned: Sequence[LearnedCondition]) -> HeldOutFindings:
        """Evaluate a classifier of images, and build the reference of its drift charts."""
        workload = self.workload
        splits = {
            **{name: getattr(workload, name) for name in ("validation", "reference", "test")},
            "false alarms": find_false_alarm_split(workload),
        }
        outputs = {name: predict_split(run_engine, split) for name, split in splits.items()}
        temperature = choose_temperature(*outputs["validation"][::2], *outputs["reference"][::2])
        metrics = evaluate_predictions(*outputs["test"][::2], [str(name) for name in workload.classes], temperature)
        arrays = build_reference_arrays(workload, outputs["reference"])
        if not include_drift:
            return HeldOutFindings(metrics=metrics, arrays=arrays)
        drift_arrays = build_drift_arrays(run_engine, workload, outputs, temperature, learned)
        return add_drift_findings(metrics, arrays, drift_arrays)
