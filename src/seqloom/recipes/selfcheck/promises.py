"""What is promised of a model, in a sentence each."""

from collections.abc import Callable, Mapping, Sequence

from seqloom.recipes.selfcheck.cases import Case
from seqloom.recipes.selfcheck.findings import Finding
from seqloom.search.settings import SearchConfig

SearchCheck = Callable[[Sequence[Case], SearchConfig], Finding]

PROMISES: Mapping[str, str] = {
    "files": "every file is what was written, by its SHA-256",
    "saved": "writing and reading the model changes nothing",
    "lines": "N lines in, N lines out, in their order",
    "blank": "a blank line gives an empty line",
    "batch": "batch size and padding change no token",
    "batch-int8": "nor do they in eight bits",
    "greedy": "beam 1 is greedy search",
    "fast": "the fast search is the readable one",
    "plan": "the decoder's plan is its layers",
    "complete": "no wider beam beats a search that is marked complete",
    "terms": "the terms of a score add up to it",
    "score": "scoring an output gives the score of the search",
    "seed": "the same seed gives the same texts",
    "features": "neighbours change no contextual vector",
}
