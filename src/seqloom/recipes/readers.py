"""Which reader a language model needs: the one place that knows all kinds of them."""

from typing import cast

from seqloom.classical.ngram import NGram
from seqloom.core.errors import UsageError
from seqloom.models.elmo import Elmo
from seqloom.models.rnn_lm import RnnLm
from seqloom.recipes.load import Loaded, in_words
from seqloom.recipes.reading import NGramReader, Reader, RecurrentReader
from seqloom.tasks.language_modelling import LanguageModel


def reader_of(loaded: Loaded) -> Reader:
    """The reader of a loaded model; one that is no language model is refused with what can be done with it."""
    model = loaded.model
    if isinstance(model, RnnLm):
        return RecurrentReader(model, loaded.device)
    if isinstance(model, Elmo):
        half = cast("LanguageModel", model.forward_half())
        return RecurrentReader(half, loaded.device, context="line", has_blank_lines=False)
    if isinstance(model, NGram):
        return NGramReader(model)
    raise UsageError(f"{loaded.folder} is no language model: {in_words(loaded.config)}")
