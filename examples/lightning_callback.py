"""Watch Lightning's Trainer: one callback, and no line of the module or the loop changes.

    pip install '.[frameworks]'
    python examples/lightning_callback.py
    equipoise pages runs

Two micro-batches are accumulated for each step, so that one worker has two gradients to compare. Several workers have
them without: `torchrun --nproc-per-node 2 examples/lightning_callback.py --devices 2`.
"""

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from equipoise.callbacks.lightning import EquipoiseCallback


class DigitClassifier(lightning.LightningModule):
    """Small network as a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return F.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Log the accuracy on a batch."""
        images, labels = batch
        accuracy = (self.network(images).argmax(1) == labels).double().mean()
        self.log("val_accuracy", accuracy, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of all weights."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    """Train for a few epochs, and print what was observed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/observed-lightning", help="new folder for the record")
    parser.add_argument("--devices", type=int, default=1, help="workers")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    images = TensorDataset(torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target))
    train, validation = torch.utils.data.random_split(images, [1500, 297])
    callback = EquipoiseCallback(
        arguments.out, name="lightning-digits", metric="val_accuracy", target=0.95, noise_scale_every=1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.devices,
        strategy="ddp" if arguments.devices > 1 else "auto",
        max_epochs=8,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitClassifier(), DataLoader(train, 32, shuffle=True, drop_last=True), DataLoader(validation, 297))
    observer = callback.observer
    if observer and trainer.is_global_zero:
        print(observer.summary)
        print(f"metric: {observer.laps[-1].metric:.3f}")


if __name__ == "__main__":
    main()
