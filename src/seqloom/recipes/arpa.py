"""ARPA files as language models, and n-gram models as ARPA files."""

from pathlib import Path

from seqloom.classical.ngram import NGram
from seqloom.core.arguments import as_path
from seqloom.core.config import resolve
from seqloom.core.errors import UsageError
from seqloom.core.symbols import RESERVED
from seqloom.interop.arpa import read_arpa, write_arpa
from seqloom.recipes.config import RunConfig
from seqloom.recipes.load import Card, Loaded, LoadedFitted, in_words, load_any
from seqloom.text.kinds import Words
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers
from seqloom.text.vocabulary import Vocabulary


def is_arpa(path: Path) -> bool:
    """Whether a model is an ARPA file, by its name."""
    return path.name.removesuffix(".gz").endswith(".arpa") and not path.is_dir()


def load_language_model(path: Path | str, *, device: str | None = None) -> Loaded:
    """A model directory, a run, or an ARPA file."""
    path = as_path(path, "folder")
    return load_arpa(path) if is_arpa(path) else load_any(path, device=device)


def load_arpa(path: Path) -> LoadedFitted:
    """The model of an ARPA file; words are what stands between spaces, as it was for the program that wrote it."""
    model = read_arpa(path)
    # Words are looked up as the file writes them: in a normal form they might be others.
    text = TextConfig(kind="word", segmentation="spaces", unicode_form="none")
    words = tuple(model.vocabulary[len(RESERVED) :])
    tokenizer = Tokenizer(text, Words(Vocabulary(words, (0,) * len(words)), segmentation="spaces"))
    settings = {"text": text.model_dump(), "model": {"kind": "ngram", "order": model.order}}
    card = Card(source=None, target=None, parameters=sum(array.size for array in model.arrays().values()))
    return LoadedFitted(path, resolve(RunConfig, defaults=settings), Tokenizers(tokenizer, tokenizer), model, card)


def write_model_as_arpa(model: Path, out: Path) -> None:
    """Write the n-gram model of a directory or a run to an ARPA file, compressed if its name ends in `.gz`."""
    if not is_arpa(out):
        raise UsageError(f"{out} ends neither in .arpa nor in .arpa.gz; name the file with one of these endings")
    loaded = load_any(model)
    if not isinstance(loaded.model, NGram):
        raise UsageError(f"{loaded.folder} cannot become an ARPA file, which holds n-grams: {in_words(loaded.config)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_arpa(loaded.model, out)
