"""Workload fashion-mnist: 70,000 grey images of clothing, 28x28 (Xiao et al., 2017)."""

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.workloads.base import select_split, stratified_split
from equipoise.workloads.download import load_torchvision_dataset, resize_images
from equipoise.workloads.image_workload import ImageWorkload
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


def fashion_mnist(config: TrainConfig) -> ImageWorkload:
    """Build the Fashion-MNIST workload: the published test set is the test split, the others share the training set."""
    train_set, test_set = load_torchvision_dataset("FashionMNIST", config.data, FASHION_MNIST_FILES)
    size = config.image_size or train_set.data.shape[1]
    train, validation, reference = stratified_split(train_set.targets.numpy(), (0.1, 0.1))
    pictures, labels = resize_images(train_set.data[:, None], size), train_set.targets
    test_pictures, test_labels = resize_images(test_set.data[:, None], size), test_set.targets
    return ImageWorkload(
        name="fashion-mnist",
        classes=train_set.classes,
        train=select_split(pictures, labels, train),
        validation=select_split(pictures, labels, validation),
        reference=select_split(pictures, labels, reference),
        test=select_split(test_pictures, test_labels, stratified_split(test_labels.numpy(), ())[0]),
        model=model_factory(config.model or "lenet", num_classes=10, in_channels=1, image_size=size),
        target=0.88,
        mean=(0.286,),
        std=(0.353,),
        augment=Augment(shift=2, flip=True),
    )
