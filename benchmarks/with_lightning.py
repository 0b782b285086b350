"""Lightning's Trainer over tensors in memory: torchrun ... -m benchmarks.with_lightning."""

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import StepClock, read_world_size
from benchmarks.training_case import LR, MOMENTUM, build_model, compute_scale, get_examples, parse_case
from equipoise.workloads import ImageWorkload


class LightningClassifier(lightning.LightningModule):
    """The model with its loss; images are normalized a batch at a time."""

    def __init__(self, workload: ImageWorkload, clock: StepClock) -> None:
        super().__init__()
        self.model = build_model(workload)
        self.gain, self.offset = compute_scale(workload)  # not buffers: DDP would send those every step
        self.clock = clock

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of one batch and log it for the mean of the epoch."""
        images, labels = batch
        loss = F.cross_entropy(self.model(images.float().mul_(self.gain).add_(self.offset)), labels)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build the optimizer and let the clock count its steps."""
        optimizer = torch.optim.SGD(self.parameters(), lr=LR, momentum=MOMENTUM)
        self.clock.attach_to(optimizer)
        return optimizer


def main() -> None:
    """Train with everything turned off that is not training."""
    case = parse_case(__doc__)
    torch.set_num_threads(1)
    workload, clock = case.load_workload(), StepClock(case)
    loader = DataLoader(TensorDataset(*get_examples(workload)), batch_size=case.batch, shuffle=True, drop_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=read_world_size(),
        strategy="ddp" if read_world_size() > 1 else "auto",
        max_epochs=-1,
        max_steps=case.all_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(LightningClassifier(workload, clock), loader)
    clock.print_speed()


if __name__ == "__main__":
    main()
