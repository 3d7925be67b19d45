"""A small tagged language: its tags follow from endings, from the word, and from the word before."""

from pathlib import Path

import numpy as np

STEMS = ("kal", "tor", "mip", "sen", "dra", "pol", "rif", "gun")
COMMENT = "# sent_id = {}\n"


def sentences(count: int, *, seed: int = 1) -> list[list[tuple[str, str, str, str]]]:
    """Word, lemma, UPOS and FEATS. After `ha` a word in -o is a noun, elsewhere a verb: neighbours decide."""
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = []
        for _ in range(int(draw.integers(2, 6))):
            stem = str(draw.choice(STEMS)) + str(draw.choice(STEMS))
            if draw.random() < 0.5:
                words += [("ha", "ha", "DET", "_"), (f"{stem}o", stem, "NOUN", "Number=Sing")]
            else:
                words.append((f"{stem}o", f"{stem}i", "VERB", "_"))
        made.append([*words, (".", ".", "PUNCT", "_")])
    return made


def write_conllu(path: Path, *, count: int = 80, seed: int = 1) -> Path:
    """With comments, a range and an empty node in each sentence."""
    text = ""
    for number, words in enumerate(sentences(count, seed=seed)):
        text += COMMENT.format(number) + "1-2\tfirsttwo\t_\t_\t_\t_\t_\t_\t_\t_\n"
        for place, (form, lemma, upos, feats) in enumerate(words, start=1):
            text += f"{place}\t{form}\t{lemma}\t{upos}\t_\t{feats}\t_\t_\t_\tx={place}\n"
            text += "1.1\t_\t_\t_\t_\t_\t_\t_\t_\t_\n" if place == 1 else ""
        text += "\n"
    path.write_bytes(text.encode())
    return path


def write_spans(path: Path, *, count: int = 80, seed: int = 1) -> Path:
    """Token columns, separated by spaces: a word, and BIO tags of names, which begin with `ha`."""
    rows = []
    for words in sentences(count, seed=seed):
        before = ""
        for form, *_ in words:
            rows.append(f"{form} {'B-N' if form == 'ha' else 'I-N' if before == 'ha' else 'O'}")
            before = form
        rows.append("")
    path.write_text("\n".join(rows), encoding="utf-8")
    return path
