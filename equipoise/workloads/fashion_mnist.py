"""Fashion-MNIST: 70,000 pictures of clothing, 28x28, grey (Xiao et al., 2017)."""

from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.workloads.base import Workload, select_examples, stratified_split
from equipoise.workloads.download import load_torchvision_dataset, resize_images
from equipoise.workloads.models import model_factory

FASHION_MNIST_FILES = [
    f"FashionMNIST/raw/{part}.gz"
    for part in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
]


def fashion_mnist(config: TrainConfig) -> Workload:
    """Ten classes; the published test set is the test split, the rest is dealt from the training set."""
    size = config.image_size or 28
    known, unseen = load_torchvision_dataset("FashionMNIST", Path(config.data), FASHION_MNIST_FILES)
    train, validation, reference = stratified_split(known.targets.numpy(), (0.1, 0.1))
    pictures = resize_images(known.data[:, None], size)
    return Workload(
        name="fashion-mnist",
        classes=known.classes,
        train=select_examples(pictures, known.targets, train),
        validation=select_examples(pictures, known.targets, validation),
        reference=select_examples(pictures, known.targets, reference),
        test=select_examples(
            resize_images(unseen.data[:, None], size), unseen.targets, stratified_split(unseen.targets.numpy(), ())[0]
        ),
        model=model_factory(config.model or "lenet", num_classes=10, in_channels=1, image_size=size),
        target=0.88,
        mean=(0.286,),
        std=(0.353,),
        augment=Augment(shift=2, flip=True),
    )
