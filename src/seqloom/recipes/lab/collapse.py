"""Why word2vec needs negatives: with the seen pairs alone, every vector turns into the same direction."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seqloom.core.symbols import END, RESERVED
from seqloom.data.phrasebook.pairs import sample_pairs
from seqloom.inspection.collapse import Course, follow
from seqloom.inspection.drawing import FIRST, SECOND
from seqloom.inspection.findings import Finding
from seqloom.recipes.lab.bench import rounded
from seqloom.recipes.lab.pictures import frames
from seqloom.recipes.lab.progress import Countdown, Say, silent
from seqloom.text.encoded import EncodedText

NEGATIVES = (0, 5)


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Mean cosine, norm and loss by epoch, without negatives and with five."""
    sentences, epochs, width, rate = (400, 6, 8, 0.1) if quick else (2000, 20, 32, 0.05)
    text = english(sentences, seed=seed)
    countdown = Countdown(say, len(NEGATIVES))
    courses = []
    for negatives in NEGATIVES:
        courses.append(follow(text, negatives=negatives, epochs=epochs, width=width, rate=rate, seed=seed))
        countdown.done(f"{negatives} negatives")
    return [_finding(text, courses, seed=seed, sentences=sentences)]


def english(sentences: int, *, seed: int) -> EncodedText:
    """Sentences of the phrasebook as words."""
    lines = [pair.target_tokens for pair in sample_pairs("de", "en", count=sentences, seed=seed)]
    words = sorted({word for line in lines for word in line})
    ids = {word: number for number, word in enumerate(words, start=len(RESERVED))}
    flat = [number for line in lines for number in (*(ids[word] for word in line), END)]
    return EncodedText(np.array(flat, np.int32), (*RESERVED, *words))


def _finding(text: EncodedText, courses: list[Course], *, seed: int, sentences: int) -> Finding:
    without, with_them = courses
    epochs = len(without.losses)
    sentence = (
        f"Without negatives the mean cosine of two words goes from {without.cosines[0]:.2f} to "
        f"{without.cosines[-1]:.2f} in {epochs} epochs while the loss falls to {without.losses[-1]:.3f} and vectors "
        f"grow to a length of {without.norms[-1]:.1f}: all words become one. With {with_them.negatives} negatives it "
        f"ends at {with_them.cosines[-1]:.2f}, with a loss of {with_them.losses[-1]:.3f} per term."
    )
    data = {
        "seed": seed,
        "sentences": sentences,
        "words": text.symbols - len(RESERVED),
        "courses": [
            {
                "negatives": course.negatives,
                "losses": rounded(course.losses),
                "cosines": rounded(course.cosines),
                "norms": rounded(course.norms),
            }
            for course in courses
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for course, colour in zip(courses, (SECOND, FIRST), strict=True):
            label = f"{course.negatives} negatives" if course.negatives else "no negatives"
            left.plot(range(epochs + 1), course.cosines, "o-", ms=3, color=colour, label=label)
            right.plot(range(1, epochs + 1), course.losses, "o-", ms=3, color=colour, label=label)
        left.set_ylim(-0.05, 1.05)
        left.set_ylabel("mean cosine of two words")
        right.set_ylim(bottom=0)
        right.set_ylabel("loss per term (nats)")
        right.legend(frameon=False, fontsize=9)
        for axes in (left, right):
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return figure

    return Finding("collapse", "Word vectors without negatives", sentence, data, draw)
