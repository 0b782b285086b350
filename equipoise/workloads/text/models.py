"""Language models by name: our GPT in any size, and architectures of transformers."""

from collections.abc import Callable
from functools import partial

from torch import nn

from equipoise.errors import EquipoiseError
from equipoise.workloads.text.gpt import GPT
from equipoise.workloads.text.hugging_face import hugging_face_factory
from equipoise.workloads.text.model_size import ModelSize, parse_model_size

GPT_SIZE = ModelSize(layers=2, width=64)


def language_model_factory(name: str, vocabulary_size: int, context: int) -> Callable[[], nn.Module]:
    """Return a function that builds a new model by its name.

    Names are gpt, gpt:LAYERSxWIDTH, hf:ARCHITECTURE, hf:ARCHITECTURE:LAYERSxWIDTH and hf:FOLDER with a config.json.
    """
    kind, _, size = name.partition(":")
    if kind == "hf":
        return hugging_face_factory(name, vocabulary_size, context)
    if kind != "gpt":
        raise EquipoiseError(
            "model-unknown",
            f"there is no language model {name!r}",
            "choose gpt, a size of it such as gpt:4x128, or an architecture of transformers such as hf:llama:4x128",
        )
    parsed = parse_model_size(name, size) if ":" in name else GPT_SIZE
    return partial(GPT, vocabulary_size, context, parsed.layers, parsed.width, parsed.heads)
