"""Low-rank adapters (LoRA) of a frozen model, made by peft and merged into its weights when training has ended.

A dense layer W x becomes W x + 2 B A x, of which only A (rank x inputs) and B (outputs x rank) learn (Hu et al., LoRA,
2021). B starts at zero, so that training starts from the model itself.
"""

import warnings
from collections.abc import Collection
from importlib.util import find_spec

from torch import nn

from equipoise.errors import EquipoiseError

ADAPTER_SCALE = 2  # of B A, whatever the rank


def add_adapters(model: nn.Module, rank: int, trained_names: Collection[str] = ()) -> None:
    """Freeze a model but for the weights in `trained_names`, and add an adapter to each of its dense layers."""
    if find_spec("peft") is None:
        raise EquipoiseError("package-missing", "cannot use --lora-rank: peft is not installed", "pip install peft")
    from peft import LoraConfig, inject_adapter_in_model

    if not (layers := list_adaptable_layers(model)):
        raise EquipoiseError("model-invalid", "cannot use --lora-rank: the model has no dense layer of its own weights")
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained_names)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to")  # peft finds out which layers are transposed
        config = LoraConfig(r=rank, lora_alpha=ADAPTER_SCALE * rank, lora_dropout=0.0, target_modules=layers)
        inject_adapter_in_model(config, model)
    for parameter in trained:  # peft freezes all but its own
        parameter.requires_grad_(True)


def list_adaptable_layers(model: nn.Module) -> list[str]:
    """Return the names of the dense layers, without those whose weights are shared, as with an embedding."""
    uses = [
        id(module.weight) for module in model.modules() if isinstance(getattr(module, "weight", None), nn.Parameter)
    ]
    return [
        name
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D") and uses.count(id(module.weight)) == 1
    ]


def merge_adapters(model: nn.Module) -> None:
    """Add the adapters of a model to its weights and remove them; a model without any stays as it is."""
    if find_spec("peft") is None:
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [(name, module) for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
    for name, layer in adapted:
        layer.merge()
        model.set_submodule(name, layer.get_base_layer())
