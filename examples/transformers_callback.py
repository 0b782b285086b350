"""Watch the Trainer of transformers: one callback, here with a small BERT that is trained from random weights.

    pip install '.[frameworks]'
    python examples/transformers_callback.py
    equipoise pages runs

The task needs no download: does a sequence hold more tokens of the first half of the vocabulary than of the second?
"""

import argparse
import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from equipoise.callbacks.transformers import EquipoiseCallback

VOCABULARY, LENGTH = 64, 15


def draw_sequences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Draw sequences of tokens with their labels."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    labels = ((tokens < VOCABULARY // 2).sum(1) > LENGTH // 2).long()
    return [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]


def measure_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the share of sequences that are right, which the Trainer calls eval_accuracy."""
    return {"accuracy": float((np.argmax(prediction.predictions, 1) == prediction.label_ids).mean())}


def main() -> None:
    """Train for a few epochs, and print what was observed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/observed-transformers", help="new folder for the record")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    callback = EquipoiseCallback(
        arguments.out, name="bert-majority", metric="eval_accuracy", target=0.9, noise_scale_every=1
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            BertForSequenceClassification(config),
            TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                per_device_train_batch_size=16,
                gradient_accumulation_steps=2,
                learning_rate=3e-3,
                num_train_epochs=3,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=10,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=draw_sequences(1024, seed=0),
            eval_dataset=draw_sequences(256, seed=1),
            compute_metrics=measure_accuracy,
            callbacks=[callback],
        )
        trainer.train()
    observer = callback.observer
    if observer and trainer.is_world_process_zero():
        print(observer.summary)
        print(f"metric: {observer.laps[-1].metric:.3f}")


if __name__ == "__main__":
    main()
