"""Links between the words of sentence pairs, from an aligner that was fitted before.

aligner = Aligner.load("aligner-de-en")
aligner.align(["Der Hund schläft."], ["The dog sleeps."])          # [[(0, 0), (1, 1), (2, 2), (3, 3)]]
aligner.probabilities("Der Hund schläft.", "The dog sleeps.")      # [source words, target words]
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
from jaxtyping import Float64, Int64

from seqloom.classical.alignment import Symmetrisation
from seqloom.classical.lexicon import Lexicon
from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_text, as_whole_number, require_choice, shown
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.symbols import RESERVED
from seqloom.runs.loading import LoadedFitted, in_words, load_any, require_loaded
from seqloom.smt.aligner import FittedAligner, cut_words
from seqloom.text.formats.pharaoh import Link
from seqloom.text.formats.segments import Languages
from seqloom.text.languages import language_name
from seqloom.text.marks import JOINER
from seqloom.text.tokenizer import Segmentation
from seqloom.text.vocabulary import Vocabulary


class Aligner:
    """Links the words of sentence pairs without learning again. Positions count words from 0, source first."""

    def __init__(self, loaded: LoadedFitted) -> None:
        require_loaded(loaded, [], caller="Aligner")
        if loaded.config.purpose != "aligner":
            raise UsageError(by_origin(f"{loaded.folder} is not an aligner: {in_words(loaded.config)}"))
        assert isinstance(loaded.model, FittedAligner)
        self.loaded, self.config, self.card = loaded, loaded.config, loaded.card
        self.fitted = loaded.model
        self._tokenizers = loaded.tokenizers

    def __repr__(self) -> str:
        return f"Aligner({self.loaded.summary()})"

    @staticmethod
    def load(folder: Path | str) -> "Aligner":
        """Read a model directory that `seqloom align --save` or `seqloom train model.kind=aligner` wrote."""
        loaded = load_any(folder)
        if not isinstance(loaded, LoadedFitted):
            raise UsageError(by_origin(f"{loaded.folder} is not an aligner: {in_words(loaded.config)}"))
        return Aligner(loaded)

    @property
    def languages(self) -> Languages:
        """Source and target language, where they are known."""
        return self.card.source, self.card.target

    @property
    def segmentation(self) -> Segmentation:
        """How text is cut into words."""
        return self._tokenizers.source.config.segmentation

    def words(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """The words of a sentence pair, which links count."""
        return cut_words(self._tokenizers.source, source), cut_words(self._tokenizers.target, target)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        symmetrise: Symmetrisation | None = None,
        threshold: float | None = None,
        threads: int = 1,
    ) -> list[list[Link]]:
        """The links of each sentence pair, sorted; none where a side is blank.

        `symmetrise` is the rule by which links are kept, and `threshold` that of the rule posterior; by default those
        of the aligner. The number of threads changes nothing but the time.
        """
        sources, targets = as_lines(sources, "sources"), as_lines(targets, "targets")
        as_whole_number(threads, "threads", least=1)
        if symmetrise is not None:
            require_choice(symmetrise, "symmetrise", get_args(Symmetrisation))
        if threshold is not None and not 0 < threshold < 1:
            raise UsageError(f"threshold {shown(threshold)} is not a probability between 0 and 1")
        if len(sources) != len(targets):
            raise UsageError(f"{len(sources):,} sources but {len(targets):,} targets; each needs a partner")
        pairs = [self.words(*pair) for pair in zip(sources, targets, strict=True)]
        ones, others = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return list(self.fitted.align(ones, others, symmetrise=symmetrise, threshold=threshold, threads=threads))

    def probabilities(self, source: str, target: str) -> Float64[np.ndarray, "source target"]:
        """The probability of a link between each source word and each target word, from both directions."""
        return self.fitted.probabilities(*self.words(as_text(source, "source"), as_text(target, "target")))

    @property
    def source_words(self) -> tuple[str, ...]:
        """The words that it knows by their ids, the reserved symbols first."""
        return self._tokenizers.source.vocabulary

    @property
    def target_words(self) -> tuple[str, ...]:
        """The same of the target side."""
        return self._tokenizers.target.vocabulary

    @cached_property
    def counts(self) -> tuple[Int64[np.ndarray, " source"], Int64[np.ndarray, " target"]]:
        """How often each word of both vocabularies was seen in training."""
        source, target = (
            Vocabulary.from_text(each.content.decode("utf-8")).counts
            for each in (self._tokenizers.source, self._tokenizers.target)
        )
        reserved = np.zeros(len(RESERVED), np.int64)
        return (
            np.concatenate([reserved, np.array(source, np.int64)]),
            np.concatenate([reserved, np.array(target, np.int64)]),
        )

    def dictionary(self, *, least: float = 0.2) -> dict[str, str]:
        """The best translation of each word, for words that a translator does not know.

        Translations whose probabilities in the two directions have a mean, √(t(y ∣ x) · t(x ∣ y)), below `least` are
        left out, and so are words that translate to themselves: these are copied, with their case.
        """
        lexicon = Lexicon.from_aligner(self.fitted.aligner, self.counts[1], best=1, least=least)
        words, targets = self.source_words, self.target_words
        found: dict[str, str] = {}
        for word, number in self.fitted.source.ids.items():
            for best, _ in lexicon.best(number):
                pair = words[number].strip(JOINER), targets[best].strip(JOINER)
                if all(pair) and pair[0].lower() != pair[1].lower():
                    found.setdefault(word.strip(JOINER), pair[1])
        return found

    def require_languages(self, languages: Languages) -> None:
        """Refuse a text whose languages are known to be others."""
        wrong = [
            (given, own)
            for given, own in zip(languages, self.languages, strict=True)
            if given and own and language_name(given) != language_name(own)
        ]
        if not wrong:
            return
        own, given = (" → ".join(code or "?" for code in pair) for pair in (self.languages, languages))
        is_turned = all(
            one and other and language_name(one) == language_name(other)
            for one, other in zip(languages, reversed(self.languages), strict=True)
        )
        remedy = "give the files in the other order" if is_turned else "use an aligner of these languages"
        raise ModelError(
            by_origin(
                f"{self.loaded.folder} is an aligner of {own}, and the text is {given} by its file names or "
                f"data.source and data.target; {remedy}"
            )
        )
