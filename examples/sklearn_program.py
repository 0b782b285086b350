"""Train scikit-learn's SGDClassifier on handwritten digits: a program that `equipoise sweep --command` takes as it is.

    equipoise sweep --command "python examples/sklearn_program.py --batch-size {batch_size} --lr {lr} --seed {seed}" \
        --target 0.92 --batch-size 8:512 --budget-seconds 60 --out runs/sklearn

`partial_fit` takes the examples of a batch one after the other, so a larger batch saves calls and needs no more
examples: its curve is flat, and the plan takes a large batch. A program in any other language only has to print lines
such as {"examples": 1024, "metric": 0.9}.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import equipoise

EPOCHS = 60
EVALUATE_EVERY = 512  # examples


def train(batch_size: int, lr: float, seed: int) -> None:
    """Train on mini-batches and report the accuracy on every fifth digit, which is held out."""
    images, labels = load_digits(return_X_y=True)
    images, is_held_out = images / 16, np.arange(len(images)) % 5 == 0
    classifier = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=lr, random_state=seed)
    rng = np.random.default_rng(seed)
    seen, next_evaluation = 0, EVALUATE_EVERY
    equipoise.report(examples=0)  # what came before is not training
    for _ in range(EPOCHS):
        order = rng.permutation(np.flatnonzero(~is_held_out))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            classifier.partial_fit(images[batch], labels[batch], classes=np.arange(10))
            seen += len(batch)
            if seen >= next_evaluation:
                accuracy = classifier.score(images[is_held_out], labels[is_held_out])
                equipoise.report(examples=seen, metric=accuracy)
                next_evaluation = seen + EVALUATE_EVERY


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options.batch_size, options.lr, options.seed)
