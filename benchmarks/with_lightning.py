"""Lightning's Trainer over tensors in memory: torchrun ... -m benchmarks.with_lightning."""

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import Clock, workers
from benchmarks.training_case import LR, MOMENTUM, asked, examples, model, scale
from equipoise.workloads import Workload


class Classifier(lightning.LightningModule):
    """The model with its loss; pictures are scaled a batch at a time."""

    def __init__(self, made: Workload, clock: Clock) -> None:
        super().__init__()
        self.model = model(made)
        self.gain, self.offset = scale(made)  # not buffers: DDP would send those every step
        self.clock = clock

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of one batch, kept for the epoch's mean."""
        pictures, labels = batch
        loss = F.cross_entropy(self.model(pictures.float().mul_(self.gain).add_(self.offset)), labels)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer, its steps counted by the clock."""
        optimizer = torch.optim.SGD(self.parameters(), lr=LR, momentum=MOMENTUM)
        self.clock.watch(optimizer)
        return optimizer


def main() -> None:
    """Fit with all that is not training turned off."""
    case = asked(__doc__)
    torch.set_num_threads(1)
    made, clock = case.workload(), Clock(case)
    loader = DataLoader(TensorDataset(*examples(made)), batch_size=case.batch, shuffle=True, drop_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=workers(),
        strategy="ddp" if workers() > 1 else "auto",
        max_epochs=-1,
        max_steps=case.all_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Classifier(made, clock), loader)
    clock.report()


if __name__ == "__main__":
    main()
