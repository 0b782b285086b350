"""Models of transformers and timm, built from a configuration, compute the same as programs of a bundle."""

import pytest
import torch

from tests.support.sequence_models import draw_tokens, publish_and_load

LANGUAGE_MODELS = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "llama": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "qwen3": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2},
}
VOCABULARY = 64


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models_of_transformers_take_any_length_and_a_mask(name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks")
    options = LANGUAGE_MODELS[name] | ({} if name == "gpt2" else {"num_attention_heads": 4})
    config = transformers.AutoConfig.for_model(name, vocab_size=VOCABULARY, use_cache=False, **options)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    program = publish_and_load(
        model, (), {"input_ids": draw_tokens(2, 7, VOCABULARY), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    )
    for batch, length in [(2, 7), (1, 1), (3, 20)]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, length // 2 + 1 :] = 0
        inputs = {"input_ids": draw_tokens(batch, length, VOCABULARY), "attention_mask": mask}
        with torch.inference_mode():
            actual, expected = program(**inputs), model(**inputs)
        assert actual.keys() == {"logits"}
        torch.testing.assert_close(actual["logits"], expected.logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [("vit_tiny_patch16_224", {"img_size": 64}), ("convnext_atto", {}), ("mobilenetv4_conv_small_035", {})],
)
def test_image_models_of_timm_take_any_batch_size(name, options):
    timm = pytest.importorskip("timm", reason="timm is not installed: make test-frameworks")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=10, **options).eval()
    program = publish_and_load(model, torch.randn(2, 3, 64, 64))
    for count in (1, 3):
        images = torch.randn(count, 3, 64, 64)
        with torch.inference_mode():
            (actual,), expected = program(images), model(images)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
