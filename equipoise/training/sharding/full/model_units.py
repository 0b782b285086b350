"""Units of a model whose weights are gathered together: its layers and blocks, each by itself, and the rest."""

from collections import Counter

from torch import nn

from equipoise.errors import EquipoiseError
from equipoise.training.finetune import NORM_LAYERS

SEQUENCES = nn.Sequential, nn.ModuleList


def list_units(model: nn.Module) -> list[nn.Module]:
    """List the layers and blocks of a model that are gathered by themselves, while they compute.

    The rest is gathered with the whole model: what shares a weight with another module, embeddings, whose weights
    language models read as those of their last layer, and norms, which are too small for an exchange of their own.
    """
    uses = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    return [
        block
        for block in list_blocks(model)
        if not isinstance(block, (nn.Embedding, *NORM_LAYERS))
        and any(True for _ in block.parameters())
        and all(uses[id(parameter)] == 1 for parameter in block.parameters())
    ]


def list_blocks(module: nn.Module) -> list[nn.Module]:
    """List the children of a module, in the place of one that holds a sequence of blocks these blocks."""
    blocks: list[nn.Module] = []
    for child in module.children():
        blocks += list_blocks(child) if holds_blocks(child, module) else [child]
    return blocks


def holds_blocks(child: nn.Module, parent: nn.Module) -> bool:
    """Return whether a module holds a sequence of blocks; a block may have a sequence of small layers inside."""
    if isinstance(child, (*SEQUENCES, nn.ModuleDict)):
        return True
    if isinstance(parent, nn.ModuleList | nn.ModuleDict):
        return False
    inside = nn.ModuleList if isinstance(parent, nn.Sequential) else SEQUENCES
    return any(isinstance(part, inside) for part in child.modules())


def require_divisible(model: nn.Module) -> None:
    """Refuse weights that have no rows to divide."""
    for name, value in model.named_parameters():
        if value.ndim == 0:
            raise EquipoiseError(
                "sharding-unusable",
                f"cannot use --sharding full: the weight {name} is a single number, which has no rows to divide",
                "give it the shape (1,), or choose --sharding optimizer",
            )
