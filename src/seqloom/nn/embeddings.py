"""Embeddings: a row of numbers per symbol."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError, check_known
from seqloom.core.symbols import PAD, RESERVED
from seqloom.nn.init import linear
from seqloom.nn.recurrent import Highway

Tying = Literal["all", "inputs", "output", "none"]
"""Which tables are one: source, target and output ("all"); source and target ("inputs"); target and output ("output");
none."""
SHARED_TYINGS: tuple[Tying, ...] = ("all", "inputs")
"""Those that need one vocabulary for both sides."""


@dataclass(frozen=True)
class Symbols:
    """How many symbols each side has, and whether both sides share one vocabulary."""

    source: int
    target: int
    is_shared: bool
    pieces: tuple[str, ...] = field(default=(), repr=False)
    """The symbols of the target side as they are written, by id, for models that read words by their letters."""


NO_SYMBOLS = Symbols(0, 0, is_shared=True)
"""Those of a model that reads images."""


class Embedding(nn.Module):
    """Looks up the row of each symbol: x = E[id], which is one-hot(id) · E without the zeros.

    The padding row begins at zero, and looking it up gives it no gradient.
    """

    row_gradients = False
    """Whether the gradient of the table holds the rows that were looked up only; set by `training.sparse`."""

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(symbols, width))
        self.reset()

    def reset(self) -> None:
        """Normal with deviation 1/√width: √width times a row, or its product with a unit feature, has variance 1."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        return F.embedding(ids, self.weight, padding_idx=PAD, sparse=self.row_gradients)


@dataclass(frozen=True)
class TiedTables:
    """The three tables of an encoder-decoder, some of which may be one."""

    source: Embedding
    target: Embedding
    output: nn.Parameter


def tied_tables(symbols: Symbols, width: int, tying: Tying) -> TiedTables:
    """The tables of an encoder-decoder, tied as `tying` says."""
    check_known("tying", tying, get_args(Tying))
    if tying in SHARED_TYINGS and not symbols.is_shared:
        raise ConfigError(
            f"model.tying is '{tying}', but the two sides have vocabularies of their own; "
            "set text.shared=true for a joint vocabulary, or model.tying=output"
        )
    target = Embedding(symbols.target, width)
    source = target if tying in SHARED_TYINGS else Embedding(symbols.source, width)
    output = Embedding(symbols.target, width).weight if tying in ("inputs", "none") else target.weight
    return TiedTables(source=source, target=target, output=output)


# Words from their letters: convolutions, highways and a projection (Kim et al., 2016; Peters et al., 2018).
#
#     x_1 … x_n = E[b_1 … b_n]                                    the bytes of a word between marks of its begin and end
#     f_k = relu(max_t (W_k [x_t; …; x_{t+k−1}] + b_k))            filters of width k: a pattern, wherever it stands
#     y = [f_1; f_2; …]
#     y ← T ⊙ relu(W y + b) + (1 − T) ⊙ y,  T = σ(W' y + b')       once for each highway
#     e = P y + c
#
# Bytes are those of UTF-8, so that every word of every script can be spelled, seen before or not.

_FIRST_BYTE = 1  # 0 stands for no letter
_BEGIN_WORD = _FIRST_BYTE + 256
_END_WORD = _BEGIN_WORD + 1
_FIRST_RESERVED = _END_WORD + 1

LETTERS = _FIRST_RESERVED + len(RESERVED)
"""Number of letters: none, the bytes, the marks of begin and end of a word, and one for each reserved symbol."""

MARKS = 2
"""Letters of a word besides its bytes."""


def spell(words: Sequence[str], *, longest: int) -> Int[Tensor, "words letters"]:
    """The letters of words, padded with 0 to the longest.

    Of a word with more than `longest` letters, its marks counted, the first ones are taken.
    """
    bytes_of = [word.encode("utf-8", "surrogatepass")[: longest - MARKS] for word in words]
    columns = max(map(len, bytes_of), default=0) + MARKS
    rows = [[_BEGIN_WORD, *(_FIRST_BYTE + byte for byte in content), _END_WORD] for content in bytes_of]
    filled = [row + [0] * (columns - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.int16).view(len(words), columns)


def spell_vocabulary(pieces: Sequence[str], *, longest: int) -> Int[Tensor, "symbols letters"]:
    """The same for a whole vocabulary, whose reserved symbols are letters of their own between the marks."""
    if tuple(pieces[: len(RESERVED)]) != RESERVED:
        raise ConfigError(f"a vocabulary begins with {RESERVED}, but this one begins with {tuple(pieces[:4])}")
    letters = spell(["", "", "", "", *pieces[len(RESERVED) :]], longest=longest)
    letters = F.pad(letters, (0, max(0, MARKS + 1 - letters.shape[1])))
    for number in range(len(RESERVED)):
        letters[number, :3] = torch.tensor([_BEGIN_WORD, _FIRST_RESERVED + number, _END_WORD], dtype=torch.int16)
    return letters


class CharacterInput(nn.Module):
    """Vectors of words from their letters; symbols are looked up in a spelled vocabulary first.

    It replaces an `Embedding`. The spelling is not a weight: it follows from the vocabulary.
    """

    def __init__(
        self,
        spelling: Int[Tensor, "symbols letters"],
        width: int,
        *,
        character_width: int,
        filter_widths: Sequence[int],
        filters: int,
        highways: int,
        longest: int,
    ) -> None:
        super().__init__()
        self.longest = longest
        self.spelling: Tensor
        self.register_buffer("spelling", spelling, persistent=False)
        self.letters = Embedding(LETTERS, character_width)
        counts = [filters * each for each in filter_widths]
        convolutions = [nn.Conv1d(character_width, *pair) for pair in zip(counts, filter_widths, strict=True)]
        self.convolutions = cast("Sequence[nn.Conv1d]", nn.ModuleList(convolutions))
        self.gates = cast("Sequence[Highway]", nn.ModuleList(Highway(sum(counts)) for _ in range(highways)))
        changes = [linear(sum(counts), sum(counts)) for _ in range(highways)]
        self.changes = cast("Sequence[nn.Linear]", nn.ModuleList(changes))
        self.projection = linear(sum(counts), width)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        """The vectors of symbols; each different one is computed once."""
        different, places = torch.unique(ids, return_inverse=True)  # [different], *shape
        return self.spelled(self.spelling[different])[places]

    def written(self, words: Sequence[str]) -> Float[Tensor, "words width"]:
        """The vectors of words as they are written, whether the vocabulary has them or not."""
        return self.spelled(spell(words, longest=self.longest).to(self.spelling.device))

    def spelled(self, letters: Int[Tensor, "words letters"]) -> Float[Tensor, "words width"]:
        """The vectors of words given by their letters."""
        vectors = self.letters(letters.long()).transpose(1, 2)  # [words, character width, letters]
        is_padding = (letters == 0)[:, None]  # [words, 1, letters]
        found = []
        for convolution in self.convolutions:
            # A pattern may reach over the end of a word, but begins within it: so no vector depends on the padding.
            (size,) = convolution.kernel_size
            sums = convolution(F.pad(vectors, (0, size - 1)))  # [words, filters, letters]
            found.append(sums.masked_fill(is_padding, float("-inf")).amax(2).relu())
        seen = torch.cat(found, 1)  # [words, all filters]
        for gate, change in zip(self.gates, self.changes, strict=True):
            seen = gate(seen, change(seen).relu())
        words: Tensor = self.projection(seen)
        return words
