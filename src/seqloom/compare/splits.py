"""The text of a comparison: one training, dev and test set for all rungs, written once as plain files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from seqloom.core.errors import DataError
from seqloom.core.events import Listener, notice
from seqloom.core.files import read_json, write_atomically
from seqloom.core.seeds import seed_for
from seqloom.data.corpus import Lines, ParallelCorpus, hold_out, open_corpus
from seqloom.data.corpus_files import languages_from
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Languages
from seqloom.text.normalise import collapse_spaces, is_blank

MAX_HELD_OUT = 1_000
"""Pairs of a dev or test set that is held out; at most a tenth of all."""

RECORD = "splits.json"


@dataclass(frozen=True)
class Splits:
    """The three sets as files, and what is known of them."""

    folder: Path
    source: str | None
    target: str | None
    train_pairs: int
    dev_pairs: int
    test_pairs: int
    leaked: int
    """Test pairs that are in the training text too."""
    leaked_sources: int
    """Test sources that are in the training text, with this or another target."""

    def files(self, name: str) -> tuple[Path, Path]:
        """Both files of a set: `train`, `train-1000`, `dev` or `test`."""
        return self.folder / f"{name}.{self.source or 'source'}", self.folder / f"{name}.{self.target or 'target'}"

    def lines(self, name: str) -> tuple[list[str], list[str]]:
        """The lines of both sides of a set."""
        source, target = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in self.files(name))
        return source, target

    def overrides(self) -> list[str]:
        """The languages as settings of a run."""
        named = {"source": self.source, "target": self.target}
        return [f"data.{side}={code}" for side, code in named.items() if code is not None]


def make_splits(
    folder: Path,
    *,
    train: Sequence[Path],
    dev: Sequence[Path],
    test: Sequence[Path],
    languages: Languages,
    encoding: str,
    sizes: Sequence[int],
    seed: int,
    listener: Listener,
) -> Splits:
    """Write the sets, and parts of the training set of these sizes, each within the next.

    A dev or test set that is not given is held out of the training text, whole sources at a time.
    """
    found = languages_from(train, FORMATS) or (None, None)
    source, target = languages[0] or found[0], languages[1] or found[1]

    def opened(paths: Sequence[Path]) -> ParallelCorpus:
        corpus = open_corpus(paths, encoding=encoding, languages=(source, target))
        for sentence in corpus.notices:
            notice(listener, sentence)
        return corpus

    rest: Lines = opened(train)
    everything, sets = len(rest), dict[str, list[tuple[str, str]]]()
    for name, paths in (("test", test), ("dev", dev)):
        if paths:
            sets[name] = list(_pairs(opened(paths)))
        else:
            count = min(MAX_HELD_OUT, everything // 10)
            if count == 0:
                raise DataError(f"too few pairs ({everything:,}) to hold out a {name} set; give --{name} files")
            held = hold_out(rest, count, seed=seed_for(seed, name))
            notice(listener, f"no {name} files: {len(held.held):,} pairs are held out, with sources of their own")
            sets[name], rest = list(_pairs(held.held)), held.rest
        if not sets[name]:
            raise DataError(f"the {name} set has no pair with text on both sides")
    sets["train"] = list(_pairs(rest))
    if not sets["train"]:
        raise DataError("the training text has no pair with text on both sides")
    known, sources = set(sets["train"]), {pair[0] for pair in sets["train"]}
    splits = Splits(
        folder,
        source,
        target,
        train_pairs=len(sets["train"]),
        dev_pairs=len(sets["dev"]),
        test_pairs=len(sets["test"]),
        leaked=sum(pair in known for pair in sets["test"]),
        leaked_sources=sum(pair[0] in sources for pair in sets["test"]),
    )
    if splits.leaked_sources:
        notice(
            listener,
            f"{splits.leaked_sources:,} of {splits.test_pairs:,} test sources are also in the training text, "
            f"{splits.leaked:,} with the same target: scores on them measure memory",
        )
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(seed_for(seed, "curves")).permutation(len(sets["train"]))
    for size in sizes:
        if size < len(sets["train"]):
            sets[f"train-{size}"] = [sets["train"][at] for at in sorted(order[:size].tolist())]
    for name, pairs in sets.items():
        for side, path in enumerate(splits.files(name)):
            write_atomically(path, "".join(f"{pair[side]}\n" for pair in pairs))
    record = {**asdict(splits), "folder": folder.name}
    write_atomically(folder / RECORD, json.dumps(record, indent=1) + "\n")
    return splits


def read_splits(folder: Path) -> Splits | None:
    """What `make_splits` wrote; None if it did not finish."""
    try:
        record = read_json(folder / RECORD)
        return Splits(**{**record, "folder": folder})
    except (OSError, ValueError, TypeError):
        return None


def _pairs(lines: Iterable[tuple[int, int, str, str]]) -> Iterable[tuple[str, str]]:
    """Pairs with text on both sides, each side on one line."""
    for _, _, source, target in lines:
        if not (is_blank(source) or is_blank(target)):
            yield collapse_spaces(source), collapse_spaces(target)
