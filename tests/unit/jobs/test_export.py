"""Export of a model's programs: what is written, and what happens to a model that cannot be expressed."""

import logging
import stat
import warnings
from types import SimpleNamespace

import onnxruntime
import pytest
import torch
from torch import nn

from equipoise.bundle.engines import ENGINES, EagerEngine
from equipoise.bundle.kinds.inference_module import InferenceModule
from equipoise.workloads import Split
from jobs.publishing.export import export_programs, silence_exporters
from jobs.publishing.kinds.image_publication import ImagePublication
from jobs.publishing.publish import benchmark_bundle_engines
from tests.support.errors import raises_code
from tests.support.sequence_models import Gpt, RecurrentModel, TableModel, build_model, draw_rows, draw_tokens

IMAGES = torch.arange(36, dtype=torch.uint8).view(3, 2, 2, 3)


class PoolingModel(nn.Module):
    """Model whose pooling over regions of unequal size ONNX does not have."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, images):
        pooled = nn.functional.adaptive_max_pool2d(nn.functional.pad(images, (0, 2, 0, 3)), (2, 3))
        return self.head(pooled.flatten(1))


class EagerOnlyModel(nn.Module):
    """Model that cannot be traced."""

    def forward(self, images):
        if type(images) is not torch.Tensor:
            raise TypeError("this model runs eagerly only\nwith any images")
        return images.flatten(1).float(), images.flatten(1).float()


def test_model_that_onnx_cannot_express_goes_without_it(tmp_path, capsys):
    module = InferenceModule(PoolingModel(), "head", (0.25, 0.5), (0.5, 0.25)).eval()
    export_programs(module, IMAGES[:2], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"program.json", "weights.safetensors"}
    assert stat.S_IMODE((tmp_path / "weights.safetensors").stat().st_mode) == 0o644
    output = capsys.readouterr()
    note = output.err.removesuffix("\n").removeprefix("note: cannot export the model to ONNX: ConversionError: ")
    assert output.out == "" and note.startswith("Failed to convert") and len(note) == 200
    logits, features = EagerEngine(tmp_path)(IMAGES)
    with torch.no_grad():
        expected = module(IMAGES)
    torch.testing.assert_close((logits, features), expected)


def test_model_that_cannot_be_traced_is_refused_in_one_sentence(tmp_path):
    with raises_code("export-failed", "TypeError: this model runs eagerly only") as raised:
        export_programs(EagerOnlyModel(), IMAGES[:2], tmp_path)
    assert "\n" not in str(raised.value) and not [*tmp_path.iterdir()]


def test_native_code_is_timed_on_request(tmp_path):
    workload = SimpleNamespace(test=Split(IMAGES, torch.zeros(3, dtype=torch.int64)))
    results = benchmark_bundle_engines(ImagePublication(workload), EagerOnlyModel(), tmp_path, include_native=True)
    assert [result.engine for result in results] == [*ENGINES, "aotinductor"]
    assert "this model runs eagerly only" in results[-1].why_not


def test_exporters_are_silent_only_inside_the_block():
    for logger in ("torch.onnx", "onnxscript"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    with silence_exporters():
        warnings.warn("about its own internals", stacklevel=1)
        assert not any(logging.getLogger(name).isEnabledFor(logging.WARNING) for name in ("torch.onnx", "onnxscript"))
        assert all(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in ("torch.onnx", "onnxscript"))
    with pytest.warns(UserWarning, match="about the model"):
        warnings.warn("about the model", stacklevel=1)


def test_inputs_and_outputs_of_onnx_are_named(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    export_programs(InferenceModule(model, "1", (0.5,), (0.5,)).eval(), IMAGES[:2], tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [value.name for value in session.get_inputs()] == ["images"]
    assert [value.name for value in session.get_outputs()] == ["logits", "features"]
    logits, features = session.run(None, {"images": IMAGES.numpy()})
    assert logits.shape == (3, 2) and features.shape == (3, 12)


@pytest.mark.parametrize("name", ["gpt", "LSTM", "GRU"])
def test_onnx_of_text_models_takes_any_length(name, tmp_path):
    model = build_model(Gpt) if name == "gpt" else build_model(RecurrentModel, name)
    export_programs(model, draw_tokens(2, 7), tmp_path, onnx_inputs=None, onnx_outputs=["logits"])
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [value.name for value in session.get_inputs()] == ["tokens"]
    for batch, length in [(2, 7), (1, 1), (5, 16)]:
        tokens = draw_tokens(batch, length)
        with torch.inference_mode():
            expected = model(tokens)
        [actual] = session.run(["logits"], {"tokens": tokens.numpy()})
        torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-4, atol=1e-4)


def test_onnx_of_a_table_model_names_its_inputs_and_outputs(tmp_path):
    model = build_model(TableModel)
    numbers, categories = draw_rows(3)
    export_programs(model, numbers, tmp_path, {"categories": categories}, onnx_inputs=None, onnx_outputs=None)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    numbers, categories = draw_rows(8)
    with torch.inference_mode():
        expected = model(numbers, categories=categories)
    names = ["logits", "labels"]
    values = session.run(names, {"numbers": numbers.numpy(), "categories": categories.numpy()})
    actual = {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


class UnlistedOperator(nn.Module):
    def forward(self, images):
        return torch.histc(images.float(), 3)


def test_model_with_an_operator_that_is_not_allowed_leaves_no_files(tmp_path):
    with raises_code("export-failed", "aten.histc.default"):
        export_programs(UnlistedOperator(), IMAGES[:2], tmp_path)
    assert not [*tmp_path.iterdir()]
