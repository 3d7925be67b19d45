"""Tiny models behind a real server, which runs as a process of its own."""

from collections.abc import Iterator

import pytest

import seqloom
from live_server import RunningServer, TinyModels, running_server
from tiny_runs import TINY, TINY_LM, write_text


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory, corpus: tuple[list[str], list[str]]) -> TinyModels:
    """Two translators, a language model and word vectors."""
    folder = tmp_path_factory.mktemp("served")
    train, dev = corpus
    settings = [*TINY, "search.beam=4"]
    for name, order in (("en-de", 1), ("de-en", -1)):
        seqloom.train(train=train[::order], dev=dev[::order], out=folder / name, overrides=settings)
    text = write_text(folder / "text.en")
    seqloom.train(train=[str(text)], out=folder / "lm", overrides=["model.kind=rnn_lm", *TINY_LM])
    seqloom.train(
        train=[str(text)],
        out=folder / "vectors",
        overrides=["model.kind=word2vec", "model.width=8", "model.minimum_count=1"],
    )
    return TinyModels(folder / "en-de", folder / "de-en", folder / "lm", folder / "vectors")


@pytest.fixture(scope="session")
def server(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with all of them, without keys; tests must not stop it."""
    words = [
        f"en-de={tiny_models.english_german}",
        f"de-en={tiny_models.german_english}",
        f"lm={tiny_models.language_model}",
        f"vectors={tiny_models.vectors}",
    ]
    with running_server(words, tmp_path_factory.mktemp("server")) as running:
        yield running
