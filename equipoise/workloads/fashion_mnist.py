"""Fashion-MNIST: 70,000 pictures of clothing, 28x28, grey (Xiao et al., 2017)."""

from pathlib import Path

from equipoise.config import Trial
from equipoise.images.augment import Augment
from equipoise.workloads.base import Workload, dealt, split
from equipoise.workloads.download import grown, loaded
from equipoise.workloads.models import model

FILES = [
    f"FashionMNIST/raw/{part}.gz"
    for part in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
]


def fashion_mnist(trial: Trial) -> Workload:
    """Ten classes; the published test set is the test split, the rest is dealt from the training set."""
    size = trial.size or 28
    known, unseen = loaded("FashionMNIST", Path(trial.data), FILES)
    train, validation, reference = dealt(known.targets.numpy(), (0.1, 0.1))
    pictures = grown(known.data[:, None], size)
    return Workload(
        name="fashion-mnist",
        classes=known.classes,
        train=split(pictures, known.targets, train),
        validation=split(pictures, known.targets, validation),
        reference=split(pictures, known.targets, reference),
        test=split(grown(unseen.data[:, None], size), unseen.targets, dealt(unseen.targets.numpy(), ())[0]),
        model=model(trial.model or "lenet", classes=10, channels=1, size=size),
        target=0.88,
        mean=(0.286,),
        std=(0.353,),
        augment=Augment(shift=2, flip=True),
    )
