"""Model at the start of a run: drawn from its seed, with pretrained weights and adapters where the options say so."""

from dataclasses import dataclass

import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.training.finetune import PretrainedWeights, initialize_from_pretrained, load_pretrained
from equipoise.training.initialization.lora import add_adapters
from equipoise.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """Model at the start of a run, and where its weights come from."""

    model: nn.Module
    """the model, on the CPU until `build_shared_model` moves it"""
    pretrained: PretrainedWeights | None = None
    """weights of --init-from, if given"""
    reused_classes: tuple[str, ...] = ()
    """classes whose rows of the classifier are pretrained"""


def build_initial_model(config: TrainConfig, workload: Workload) -> InitialModel:
    """Build the model of a run as it is before the first step, whatever torch's generator has drawn before."""
    if config.lora_rank and workload.classes:
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --lora-rank: {workload.name} classifies, and its new classifier has no pretrained weights",
            "use --freeze-stages or --body-lr-scale",
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = workload.model()
        if (pretrained := load_pretrained(config, workload)) is None:
            return InitialModel(model=model)
        classes = list(workload.classes)
        reused = initialize_from_pretrained(
            model, pretrained, classes, config.reuse_head, workload.has_independent_classes
        )
        if config.lora_rank:
            add_adapters(model, config.lora_rank, pretrained.new_names)
    return InitialModel(model=model, pretrained=pretrained, reused_classes=tuple(reused))
