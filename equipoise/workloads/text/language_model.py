"""Workload text: learn to predict the next character of plays of Shakespeare, or of your own text files."""

from types import MappingProxyType

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.storage.node_cache import fetch_data, is_url
from equipoise.storage.object_store import parse_location
from equipoise.texts.vocabulary import Vocabulary, build_vocabulary
from equipoise.workloads.base import Split, Unit
from equipoise.workloads.image_folder import folder_name
from equipoise.workloads.text.corpus import Corpus, load_shakespeare
from equipoise.workloads.text.hugging_face_weights import is_transformers_folder
from equipoise.workloads.text.models import language_model_factory
from equipoise.workloads.text.nats import mean_token_nats, window_nats
from equipoise.workloads.text.text_files import find_text_files, read_text_corpus
from equipoise.workloads.text.windows import count_windows, cut_windows
from equipoise.workloads.text.workload import TextWorkload

WINDOW_LENGTH = 64  # characters that the model sees at most
TARGET_NATS = 2.4  # about what the last two characters tell; 2.2 takes twice as long
TRAIN_DEFAULTS = MappingProxyType(
    {
        "optimizer": "adamw",
        "lr": 3e-3,
        "beta2": 0.95,
        "weight_decay": 0.1,
        "decay_on": "matrices",
        "clip_norm": 1.0,
        "warmup_examples": 1000,
        "eval_every": 2048,  # a quarter of an epoch is as much as the target takes; 1024 would take half the time
    }
)


def text(config: TrainConfig) -> TextWorkload:
    """Build a character language model of the text in --data, or of plays of Shakespeare if it is the default."""
    name, corpus = read_corpus(config)
    vocabulary = build_vocabulary(corpus.train)
    return TextWorkload(
        name=name,
        train=make_split(corpus.train, vocabulary),
        validation=make_split(corpus.validation, vocabulary),
        reference=make_split(corpus.reference, vocabulary),
        test=make_split(corpus.test, vocabulary),
        model=language_model_factory(find_model_name(config), len(vocabulary), WINDOW_LENGTH),
        target=TARGET_NATS,
        loss=mean_token_nats,
        metric=window_nats,
        lower_is_better=True,
        unit=Unit("tokens", per_example=WINDOW_LENGTH),
        defaults=TRAIN_DEFAULTS,
        vocabulary=vocabulary,
        window=WINDOW_LENGTH,
    )


def find_model_name(config: TrainConfig) -> str:
    """Return the --model, by default the architecture of the folder of transformers that --init-from names, or gpt."""
    if config.model is None and config.init_from and is_transformers_folder(config.init_from):
        return f"hf:{fetch_data(config.init_from)}"
    return config.model or "gpt"


def read_corpus(config: TrainConfig) -> tuple[str, Corpus]:
    """Return the name and the text of the corpus; refuse one that is too short for a window in every split.

    Commands make --data absolute, so its default is known by its name. Other data sets are downloaded there: only text
    files in it make it a corpus.
    """
    path = fetch_data(config.data)
    is_default = path.name == TrainConfig.data and not is_url(config.data)
    if is_default and not (path.exists() and find_text_files(path)):
        return "text", load_shakespeare()
    corpus = read_text_corpus(path)
    for split, part in vars(corpus).items():
        if not count_windows(len(part), WINDOW_LENGTH):
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot train on --data {path}: its {split} split has {len(part)} characters, and a window takes"
                f" {WINDOW_LENGTH + 1}",
                "give more text",
            )
    return folder_name(parse_location(config.data)), corpus


def make_split(part: str, vocabulary: Vocabulary) -> Split:
    """Return the windows of a text as a split, without what is left after the last whole one."""
    return Split(*cut_windows(vocabulary.encode(part), WINDOW_LENGTH))
