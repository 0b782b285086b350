"""Measure drift detection on texts: alarms on other plays, and delay and cause of other languages and characters.

python -m benchmarks.drift.texts [--windows 10000] [--repeats 20]

A small GPT learns eight plays of Shakespeare. The reference is The Tempest, and false alarms are counted on Hamlet, as
publishing does. Each request is a text of one window, 64 characters.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import torch

from benchmarks.drift.tables import RUN_LENGTH
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.hardware import describe_hardware
from equipoise.texts.vocabulary import build_vocabulary
from equipoise.workloads.text.corpus import Corpus, load_shakespeare
from tests.support.foreign_texts import FRENCH, GERMAN, draw_windows, spell_in_ascii
from tests.support.ray_cluster import ROOT
from tests.support.watched_texts import WINDOW_LENGTH, WatchedLanguageModel, cut_play, train_gpt

CLEAN_TEXTS, CHANGED_TEXTS = 320, 1280
LONG_TEXTS = 6400  # texts of a clean stream, drawn from one play
TYPO_SHARE = 0.05
Texts = Callable[[int], list[str]]
"""draws texts with a seed"""


def main() -> None:
    """Measure and print false alarms and the delay of each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=10_000, help="windows that the model is trained on")
    parser.add_argument("--repeats", type=int, default=20, help="streams of each change and of each play")
    parser.add_argument("--step", type=int, default=16, help="texts of each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_hardware(torch.device("cpu")))
    corpus = load_shakespeare()
    vocabulary = build_vocabulary(corpus.train)
    model = train_gpt(corpus.train, vocabulary, options.windows)
    plays = {"reference": cut_play(corpus.reference), "holdout": cut_play(corpus.validation)}
    both = {"reference": plays["reference"] + plays["holdout"]}
    for title, parts in {"The Tempest": plays, "The Tempest and Hamlet": both}.items():
        watched = WatchedLanguageModel.build(model, vocabulary, **parts)
        print(f"\nreference {title}, {len(parts['reference'])} windows; held out: {watched.profile.verified}\n")
        print_clean_streams(watched, corpus, options.repeats, options.step)
        if "holdout" in parts:
            print_changes(watched, corpus, options.repeats, options.step)


def print_clean_streams(watched: WatchedLanguageModel, corpus: Corpus, repeats: int, step: int) -> None:
    """Print how many streams of each play alarm, with windows drawn anywhere and with the play from its beginning."""
    print("| play | streams with an alarm | median texts to it | last reason |\n|---|--:|--:|---|")
    plays = {"The Tempest": corpus.reference, "Hamlet": corpus.validation, "Macbeth": corpus.test}
    for name, play in plays.items():
        streams = [draw_windows(play, LONG_TEXTS, WINDOW_LENGTH, 100 + seed) for seed in range(repeats)]
        print(describe_clean(watched, f"{name}, {LONG_TEXTS} windows drawn", streams, step), flush=True)
        streams = [cut_play(rotate_text(play, seed)) for seed in range(repeats)]
        print(describe_clean(watched, f"{name}, in order from any place", streams, step), flush=True)


def rotate_text(text: str, seed: int) -> str:
    """Return a text from a place drawn with a seed to its end, and then from its beginning to that place."""
    start = int(np.random.default_rng(seed).integers(len(text)))
    return text[start:] + text[:start]


def describe_clean(watched: WatchedLanguageModel, name: str, streams: Sequence[list[str]], step: int) -> str:
    """Return the row of streams in which nothing changes."""
    alarms, reason = [], ""
    for texts in streams:
        detector, count = watched.watch([], texts, RUN_LENGTH, step)
        if count is not None:
            alarms.append(count)
            reason = compute_stream_verdict(detector).why
    median = f"{np.median(alarms):.0f}" if alarms else "-"
    return f"| {name} | {len(alarms)} of {len(streams)} | {median} | {reason} |"


def print_changes(watched: WatchedLanguageModel, corpus: Corpus, repeats: int, step: int) -> None:
    """Print how fast each change alarms after clean windows of the reference play, and what is named."""
    print("\n| change | found | median texts | largest | causes | last reason |\n|---|--:|--:|--:|---|---|")
    for name, draw in list_changes(corpus).items():
        delays, causes, reason = [], [], ""
        for seed in range(repeats):
            clean = draw_windows(corpus.reference, CLEAN_TEXTS, WINDOW_LENGTH, 500 + seed)
            detector, delay = watched.watch(clean, draw(900 + seed), RUN_LENGTH, step)
            if delay is not None and delay > 0:
                delays.append(delay)
                verdict = compute_stream_verdict(detector)
                causes.append(str(verdict.cause))
                reason = verdict.why
        counts = ", ".join(f"{cause} {causes.count(cause)}" for cause in dict.fromkeys(causes))
        median, largest = (f"{np.median(delays):.0f}", str(max(delays))) if delays else ("-", "-")
        row = f"| {name} | {len(delays)} of {repeats} | {median} | {largest} | {counts} | {reason} |"
        print(row, flush=True)


def list_changes(corpus: Corpus) -> dict[str, Texts]:
    """Return each change of the texts by name."""
    german, french = (" ".join(text.split()) for text in (GERMAN, FRENCH))
    code = (ROOT / "equipoise/drift/detector.py").read_text()
    guides = " ".join((ROOT / "docs/explanation/drift-detection.md").read_text().split())

    def draw_from(text: str, length: int = WINDOW_LENGTH) -> Texts:
        return lambda seed: draw_windows(text, CHANGED_TEXTS, length, seed)

    return {
        "German": draw_from(german),
        "German without umlauts": draw_from(spell_in_ascii(german)),
        "French": draw_from(french),
        "French without accents": draw_from(spell_in_ascii(french)),
        "German in one of five texts": lambda seed: mix_texts(
            draw_from(corpus.reference)(seed), draw_from(german)(seed), 0.2, seed
        ),
        "upper case": draw_from(corpus.reference.upper()),
        "Python code": draw_from(code),
        "our documentation, English of today": draw_from(guides),
        "typing errors in 5 % of the letters": lambda seed: draw_windows(
            add_typing_errors(corpus.reference, seed), CHANGED_TEXTS, WINDOW_LENGTH, seed
        ),
        "words in another order": lambda seed: draw_windows(
            shuffle_words(corpus.reference, seed), CHANGED_TEXTS, WINDOW_LENGTH, seed
        ),
        "texts of 32 characters": draw_from(corpus.reference, 32),
        "texts of 8 characters": draw_from(corpus.reference, 8),
    }


def mix_texts(usual: Sequence[str], other: Sequence[str], share: float, seed: int) -> list[str]:
    """Return usual texts, a share of which is replaced by others."""
    is_other = np.random.default_rng(seed).random(len(usual)) < share
    return [second if replaced else first for first, second, replaced in zip(usual, other, is_other, strict=True)]


def add_typing_errors(text: str, seed: int) -> str:
    """Replace TYPO_SHARE of the letters by other small letters."""
    rng = np.random.default_rng(seed)
    letters = np.array([*text], dtype=object)
    is_wrong = (rng.random(len(letters)) < TYPO_SHARE) & np.array([letter.isalpha() for letter in text])
    letters[is_wrong] = rng.choice([*"abcdefghijklmnopqrstuvwxyz"], int(is_wrong.sum()))
    return "".join(letters)


def shuffle_words(text: str, seed: int) -> str:
    """Return the words of a text in another order; the blanks and line ends between them stay."""
    words = text.split(" ")
    return " ".join(words[index] for index in np.random.default_rng(seed).permutation(len(words)).tolist())


if __name__ == "__main__":
    main()
