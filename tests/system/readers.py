"""Every reader of files with a small good file of its kind, for the tests that mutate them."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cli.calling import call
from seqloom.apps.aligner import Aligner
from seqloom.apps.lexicon import FILE, load_lexicon, shortlist_of
from seqloom.classical.alignment import Bitext, fit_aligner
from seqloom.classical.hmm_text import HmmText
from seqloom.classical.lexicon import Lexicon
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.classical.vectors import WordVectors
from seqloom.core.config import resolve
from seqloom.core.events import ignore
from seqloom.core.files import sha256_of
from seqloom.core.symbols import END, RESERVED
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.data.store import Store, StoreWriter
from seqloom.interop.arpa import read_arpa, write_arpa
from seqloom.interop.ctranslate2_engine import Description, read_description, read_tokens
from seqloom.interop.onnx import Graphs
from seqloom.interop.onnx_stepper import read_graphs, write_graphs
from seqloom.interop.word2vec_format import read_vectors, write_vectors
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import LoadedFitted, LoadedModel, load_any
from seqloom.runs.model_dir import Card, save_fitted
from seqloom.runs.prepare import open_run, prepare_resume
from seqloom.smt.aligner import AlignerConfig
from seqloom.text.tokenizer import EncodedText, TextConfig, Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.checkpoint import checkpoint_folder, newest_checkpoint, pointed_step, read_checkpoint
from seqloom.training.run_guard import RECORD, locked
from seqloom.training.weights import average_weights
from system.bad_files import ENGLISH, GERMAN, prepare
from system.mutations import Build, Case
from system.small_models import LINES, change_json, vouch_again, write_small_model
from system.text_readers import catalogues, is_text, texts
from training.locks import write_record
from training.toy import make_trainer

# --- imports ---------------------------------------------------------------------------------------------------------


def _tokenizer(kind: str = "word") -> Tokenizer:
    return train_tokenizer(LINES, TextConfig.model_validate({"kind": kind, "size": {"unigram": 290}.get(kind, 400)}))


def _ngram() -> tuple[Tokenizer, NGram]:
    tokenizer = _tokenizer()
    ids = np.array([id for line in LINES for id in (*tokenizer.encode(line), END)])
    config = NGramConfig(order=3, smoothing="laplace")
    return tokenizer, config.fit(EncodedText(ids, tokenizer.vocabulary), seed=1)


def _vectors(width: int = 3) -> WordVectors:
    words = tuple(sorted({word for line in LINES for word in line.split()}))
    numbers = np.random.default_rng(1).normal(size=(len(words), width)).astype(np.float32)
    return WordVectors(words, numbers, np.zeros(len(words), np.int64))


def _ask_ngram(model: NGram) -> None:
    ids = np.array([len(RESERVED), model.symbols - 1, END])
    log_probs = model.log_probs(ids)
    assert not np.isnan(log_probs).any()
    assert (log_probs <= 0).all() or model.symbols  # back-off weights that were changed give no probabilities
    assert model.distribution([[len(RESERVED)]]).shape == (1, model.symbols)


def _ask_vectors(vectors: WordVectors) -> None:
    assert len(vectors.words) == len(vectors.vectors)
    vectors.nearest([vectors.words[0]], count=2)


def _arpa(name: str) -> Build:
    def build(folder: Path) -> Case:
        write_arpa(_ngram()[1], folder / name)
        return Case(folder / name, lambda: _ask_ngram(read_arpa(folder / name)))

    return build


def _word2vec(name: str) -> Build:
    def build(folder: Path) -> Case:
        write_vectors(_vectors(), folder / name)
        return Case(folder / name, lambda: _ask_vectors(read_vectors(folder / name)))

    return build


def _onnx(folder: Path) -> Case:
    for name in ("encoder.onnx", "step.onnx"):
        (folder / name).write_bytes(b"")
    write_graphs(folder, Graphs(memory=("a", "b"), state=("c",), has_attention=True, positions=100))
    (path,) = folder.glob("*.json")

    def read() -> None:
        graphs = read_graphs(folder)
        assert graphs.positions is None or graphs.positions > 0
        assert all(isinstance(name, str) for name in (*graphs.memory, *graphs.state))

    return Case(path, read)


def _ctranslate2(name: str) -> Build:
    def build(folder: Path) -> Case:
        tokens = folder / "shared_vocabulary.json"
        tokens.write_text(json.dumps([*RESERVED, "cat", "dog"]))
        records = {tokens.name: {"size": tokens.stat().st_size, "sha256": sha256_of(tokens)}}
        search = RunConfig().search.model_dump(mode="json")
        description = Description("en", "de", "int8", 100, 50, search, "1.0", records)
        (folder / "seqloom.json").write_text(description.to_json())

        def vouch() -> None:
            if name == tokens.name:
                record = {"size": tokens.stat().st_size, "sha256": sha256_of(tokens)}
                change_json(folder / "seqloom.json", files={tokens.name: record})

        def read() -> None:
            found = read_description(folder)
            assert found.positions is None or found.positions > 0
            for token in read_tokens(folder, "source"):
                is_text(token)

        return Case(folder / name, read, vouch, folder)

    return build


# --- our own folders -------------------------------------------------------------------------------------------------


def _tokenizer_folder(kind: str, *, is_description: bool) -> Build:
    def build(folder: Path) -> Case:
        home = folder / "text"
        _tokenizer(kind).save(home)
        (pieces,) = (path for path in home.iterdir() if path.name != "text.json")

        def vouch() -> None:
            if not is_description:
                change_json(home / "text.json", sha256=hashlib.sha256(pieces.read_bytes()).hexdigest())

        def read() -> None:
            found = Tokenizer.load(home)
            ids = found.encode(LINES[0])
            assert all(0 <= id < found.size for id in ids)
            is_text(found.decode(ids))

        return Case(home / "text.json" if is_description else pieces, read, vouch, home)

    return build


def _ids(name: str, *, is_stream: bool) -> Build:
    """A file of a store or stream; all but the header are vouched for anew, so that their numbers are looked at."""

    def build(folder: Path) -> Case:
        home = folder / "ids"
        rows = [[5, 6, END], [7, END], [8, 9, 10, END]]
        if is_stream:
            with StreamWriter(home, symbols=12) as stream:
                stream.append([row[:-1] for row in rows], [1, 2, 3])
        else:
            with StoreWriter(home, symbols=12) as store:
                store.append(rows, rows[::-1], [1, 2, 3])
        header = home / ("stream.json" if is_stream else "store.json")

        def vouch() -> None:
            if name not in ("store.json", "stream.json"):
                files = json.loads(header.read_text())["files"]
                files[name] = {"size": (home / name).stat().st_size, "sha256": sha256_of(home / name)}
                change_json(header, files=files)

        def read() -> None:
            _use_stream(Stream.open(home, verify=True)) if is_stream else _use_store(Store.open(home, verify=True))

        return Case(home / name, read, vouch, home)

    return build


def _use_stream(stream: Stream) -> None:
    assert sum(len(stream.line(at)) for at in range(len(stream))) == stream.tokens == stream.counts().sum()
    stream.fingerprint()
    stream.line_of(0)


def _use_store(store: Store) -> None:
    everything = np.arange(len(store))
    for side in (store.sources, store.targets):
        found = side.picked(everything)
        assert found.padded().shape == (len(store), found.lengths.max())
        assert all(len(side[at]) == length for at, length in enumerate(found.lengths))
    store.fingerprint()


def _checkpoint(name: str) -> Build:
    """A file of a checkpoint, vouched for anew: that others are refused is shown in tests/training/test_damage.py."""

    def build(folder: Path) -> Case:
        make_trainer(folder / "run", steps=2, validate_every=0)[0].train()
        home = checkpoint_folder(folder / "run", 2)

        def vouch() -> None:
            if name != "manifest.json":
                files = json.loads((home / "manifest.json").read_text())["files"]
                files[name] = {"size": (home / name).stat().st_size, "sha256": sha256_of(home / name)}
                change_json(home / "manifest.json", files=files)

        def read() -> None:
            assert read_checkpoint(home).step == 2
            assert newest_checkpoint(folder / "run", listener=ignore) is not None

        return Case(home / name, read, vouch, home)

    return build


def _pointer(folder: Path) -> Case:
    path = folder / "checkpoints" / "latest"
    path.parent.mkdir()
    path.write_text("step-12\n")
    return Case(path, lambda: pointed_step(folder, "latest"))


def _weights(folder: Path) -> Case:
    """Of a path that is given, without a manifest."""
    path = folder / "a.safetensors"
    shutil.copy(write_small_model(folder / "model") / "model.safetensors", path)
    return Case(path, lambda: average_weights([path, path]))


def _translator(name: str) -> Build:
    def build(folder: Path) -> Case:
        home = write_small_model(folder / "model")
        pieces = home / "text" / "shared" / "vocabulary.txt"

        def vouch() -> None:
            if name == "text/shared/vocabulary.txt":
                change_json(home / "text/shared/text.json", sha256=hashlib.sha256(pieces.read_bytes()).hexdigest())
            if name != "manifest.json":
                vouch_again(home)

        def read() -> None:
            found = load_any(home)
            assert isinstance(found, LoadedModel)
            called = call("info", home)
            assert called.code == 0, called.err

        return Case(home / name, read, vouch, home)

    return build


def _fitted(kind: str) -> Build:
    def build(folder: Path) -> Case:
        home = folder / "model"
        tokenizer, ngram = _ngram()
        if kind == "ngram":
            arrays = ngram.arrays()
        elif kind == "hmm":
            generator, states = np.random.default_rng(3), np.ones(4)
            arrays = {"start": generator.dirichlet(states), "transitions": generator.dirichlet(states, 4)}
            arrays["emissions"] = generator.dirichlet(np.ones(tokenizer.size), 4)
        else:
            rows = tokenizer.size - len(RESERVED)
            numbers = np.random.default_rng(2).normal(size=(rows, 4)).astype(np.float32)
            symbols = np.arange(len(RESERVED), tokenizer.size)
            arrays = {"vectors": numbers, "counts": np.ones(rows, np.int64), "symbols": symbols, "losses": np.ones(2)}
        config = resolve(RunConfig, overrides=[f"model.kind={kind}", "text.kind=word"])
        save_fitted(home, config, tokenizers=Tokenizers(tokenizer, tokenizer), arrays=arrays, card=Card(None, "en", 1))

        def read() -> None:
            found = load_any(home)
            assert isinstance(found, LoadedFitted)
            if isinstance(found.model, HmmText):
                assert found.model.log_probs(np.array([4, END])).shape == (2,)
            elif isinstance(found.model, NGram):
                _ask_ngram(found.model)
            else:
                _ask_vectors(_as_vectors(found.model))
            called = call("info", home)
            assert called.code == 0, called.err

        return Case(home / "model.safetensors", read, lambda: vouch_again(home), home)

    return build


def _aligner(folder: Path) -> Case:
    home, tokenizer = folder / "model", _tokenizer()
    ids = [tokenizer.encode(line) for line in LINES]
    tokenizers, config = Tokenizers(tokenizer, tokenizer), resolve(RunConfig, overrides=["model.kind=aligner"])
    assert isinstance(config.model, AlignerConfig)
    arrays = config.model.fit_words(Bitext.from_sentences(ids, ids), tokenizers).arrays()
    save_fitted(home, config, tokenizers=tokenizers, arrays=arrays, card=Card("en", "en", 1))

    def read() -> None:
        aligner = Aligner.load(home)
        for line in LINES[:3]:
            words = len(aligner.words(line, line)[0])
            (links,) = aligner.align([line], [line])
            assert all(max(link) < words for link in links)
            table = aligner.probabilities(line, line)
            assert ((table >= 0) & (table <= 1 + 1e-6)).all()
        called = call("info", home)
        assert called.code == 0, called.err

    return Case(home / "model.safetensors", read, lambda: vouch_again(home), home)


def _as_vectors(model: Any) -> WordVectors:
    assert isinstance(model, WordVectors)
    return model


def _lexicon(folder: Path) -> Case:
    home = write_small_model(folder / "model")
    tokenizers = Tokenizers.load(home / "text")
    ids = [tokenizers.source.encode(line) for line in LINES]
    bitext = Bitext.from_sentences(ids, ids)
    Lexicon.from_aligner(fit_aligner(bitext), np.bincount(bitext.targets)).save(home / FILE)

    def read() -> None:
        lexicon = load_lexicon(home, tokenizers)
        symbols = shortlist_of(lexicon, 5).symbols(range(tokenizers.source.size))
        assert 0 <= symbols.min() <= symbols.max() < tokenizers.target.size

    return Case(home / FILE, read, lambda: vouch_again(home), home)


def _run(name: str) -> Build:
    def build(folder: Path) -> Case:
        prepare(folder, ENGLISH, GERMAN)
        home = folder / "run"

        def read() -> None:
            config, record = open_run(home)
            prepare_resume(home, config, record=record, allow_data_change=False, listener=ignore)

        return Case(home / name, read, named=folder)

    return build


def _lock(folder: Path) -> Case:
    """Of a process that is gone, which is taken over."""
    write_record(folder, 999_999_999)

    def read() -> None:
        with locked(folder):
            pass

    return Case(folder / RECORD, read, named=folder)


MODEL = ("config.yaml", "manifest.json", "model.json", "model.safetensors")
TOKENISER = ("text/shared/text.json", "text/shared/vocabulary.txt")
CHECKPOINT = ("manifest.json", "model.safetensors", "optim.safetensors", "rng.safetensors", "state.json")

READERS: Mapping[str, Build] = {
    **catalogues(),
    **texts(),
    **{name: _arpa(name) for name in ("a.arpa", "a.arpa.gz")},
    **{name: _word2vec(name) for name in ("a.vec", "a.vec.gz", "a.bin", "a.bin.gz")},
    "onnx description": _onnx,
    **{f"ctranslate2 {name}": _ctranslate2(name) for name in ("seqloom.json", "shared_vocabulary.json")},
    **{f"{kind} pieces": _tokenizer_folder(kind, is_description=False) for kind in ("word", "char", "bpe", "unigram")},
    "tokeniser description": _tokenizer_folder("bpe", is_description=True),
    **{
        f"store {name}": _ids(name, is_stream=False) for name in ("store.json", "source.ids", "target.lengths", "lines")
    },
    **{f"stream {name}": _ids(name, is_stream=True) for name in ("stream.json", "ids", "lengths", "lines")},
    **{f"checkpoint {name}": _checkpoint(name) for name in CHECKPOINT},
    "pointer": _pointer,
    "weights": _weights,
    **{f"model {name}": _translator(name) for name in (*MODEL, *TOKENISER)},
    **{kind: _fitted(kind) for kind in ("ngram", "hmm", "word2vec")},
    "aligner": _aligner,
    "lexicon": _lexicon,
    "lock": _lock,
    **{f"run {name}": _run(name) for name in ("run.json", "config.yaml", "data/train/store.json")},
}
