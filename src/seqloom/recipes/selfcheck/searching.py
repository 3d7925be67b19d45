"""Promises of every search: greedy is beam 1, fast is readable, complete is unbeaten, terms add up."""

import math
from collections.abc import Sequence

import torch

from seqloom.core.errors import UsageError
from seqloom.recipes.selfcheck.cases import Case
from seqloom.recipes.selfcheck.findings import TIE, Figure, Finding, counted, judged, shown, within
from seqloom.recipes.selfcheck.ties import Agreement, Difference, greedy_gap
from seqloom.search.beam import beam_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.plain_beam import plain_beam_search
from seqloom.search.settings import SearchConfig

EXACT = 1e-9
"""How far sums in float64 may be from each other."""

WIDER = (2, 4)
"""How many times as wide the beams are that try to beat a search."""


@torch.inference_mode()
def check_greedy(cases: Sequence[Case], settings: SearchConfig) -> Finding:
    """Beam 1 = greedy, by both ways of searching by beam."""
    narrow = settings.model_copy(update={"beam": 1, "nbest": 1})
    found = Agreement(TIE)
    for case in cases:
        greedy = greedy_search(case.stepper(narrow), case.source, narrow)
        for search in (plain_beam_search, beam_search):
            for name, one, (other, *_) in zip(
                case.names, greedy, search(case.stepper(narrow), case.source, narrow), strict=True
            ):
                if one.symbols == other.symbols and one.is_finished == other.is_finished:
                    found.same(one, other, name)
                else:
                    texts = case.write(one.symbols), case.write(other.symbols)
                    found.differ(Difference(name, *texts, greedy_gap(one, other)))
    is_kept = not found.breaks and found.drift <= TIE
    figures = {"outputs": found.compared, "changed": len(found.breaks), "ties": len(found.ties), "drift": found.drift}
    if found.breaks:
        sentence = f"{len(found.breaks):,} of {counted(found.compared, 'output')} of beam 1 are not those of greedy"
    else:
        rest = "" if is_kept else f", but a score is {found.drift:.1e} off"
        sentence = f"{counted(found.compared, 'output')} of beam 1 are those of greedy search, token for token{rest}"
    if found.ties:
        sentence += f"; {counted(len(found.ties), 'tie')} decided otherwise"
    return judged(is_kept, sentence, figures=figures, worst=str(found.widest) if found.widest else None)


@torch.inference_mode()
def check_fast(cases: Sequence[Case], settings: SearchConfig) -> Finding:
    """The fast beam search gives the lists of the readable one."""
    settings = settings.model_copy(update={"nbest": settings.beam})
    compared, wrong, drift = 0, [], 0.0
    for case in cases:
        fast = plain_beam_search(case.stepper(settings), case.source, settings)
        readable = beam_search(case.stepper(settings), case.source, settings)
        for name, one, other in zip(case.names, fast, readable, strict=True):
            compared += len(other)
            if [_told(each) for each in one] != [_told(each) for each in other]:
                texts = [shown(case.write(each[0].symbols)) for each in (one, other)]
                wrong.append(f"{shown(name)} gives {texts[0]} and others by the fast search, {texts[1]} by the other")
            else:
                drift = max([drift, *(abs(a.score - b.score) for a, b in zip(one, other, strict=True))])
    is_kept = not wrong and drift <= EXACT
    sentence = f"{compared:,} hypotheses by both searches: "
    sentence += f"lists of {len(wrong):,} sentences differ" if wrong else f"the same lists, scores {within(drift)}"
    figures: dict[str, Figure] = {"hypotheses": compared, "lists_that_differ": len(wrong), "drift": drift}
    return judged(is_kept, sentence, figures=figures, worst=wrong[0] if wrong else None)


def _told(hypothesis: Hypothesis) -> tuple[tuple[int, ...], bool, bool]:
    return hypothesis.symbols, hypothesis.is_finished, hypothesis.is_complete


@torch.inference_mode()
def check_complete(cases: Sequence[Case], settings: SearchConfig) -> Finding:
    """What is marked complete is not beaten by wider beams."""
    settings = settings.model_copy(update={"nbest": 1})
    widths = [times * settings.beam for times in WIDER if times * settings.beam <= 1_000]
    marked, sentences, improved = 0, 0, 0
    worst, lead = None, -math.inf
    for case in cases:
        found = [hypotheses[0] for hypotheses in case.search(settings)]
        sentences += len(found)
        marked += sum(each.is_complete for each in found)
        better = [-math.inf] * len(found)
        for width in widths:
            wide = case.search(settings.model_copy(update={"beam": width}))
            better = [max(best, of_one[0].score) for best, of_one in zip(better, wide, strict=True)]
        for name, own, best in zip(case.names, found, better, strict=True):
            improved += not own.is_complete and best > own.score + TIE
            if own.is_complete and best - own.score > lead:
                lead = best - own.score
                worst = f"{shown(name)}: marked complete at {own.score:.6f}, a wider beam comes to {best:.6f}"
    figures: dict[str, Figure] = {"sentences": sentences, "complete": marked, "others_improved": improved}
    if not marked:
        return Finding("not applicable", f"none of {sentences:,} searches is marked complete", figures)
    beams = " and ".join(map(str, widths))
    rest = sentences - marked
    of_others = f"; wider beams find better outputs for {improved:,} of the other {rest:,}" if rest else ""
    if lead > TIE:
        sentence = f"a search marked complete is beaten by {lead:.1e} by a wider beam"
    else:
        sentence = (
            f"{marked:,} of {sentences:,} searches are marked complete, none is beaten by beam {beams}{of_others}"
        )
    return judged(lead <= TIE, sentence, figures={**figures, "largest_lead": lead}, worst=worst)


@torch.inference_mode()
def check_terms(cases: Sequence[Case], settings: SearchConfig, *, source: bool) -> Finding:
    """Terms add up to the score, and token log-probabilities to log P; under the model's settings and with all terms.

    `source` says that there is a source text, whose length and attention scores may look at.
    """
    own = settings.model_copy(update={"nbest": settings.beam})
    rich = {"length_normalisation": "power", "alpha": 0.7, "reward": 0.3}
    if source:
        rich |= {"end_normalisation": 0.4, "end_kind": "multiply", "coverage": 0.2}
    every = own.model_copy(update=rich)
    if not _gives_attention(cases, every):
        every = every.model_copy(update={"coverage": 0.0})
    count, worst, off, names = 0, None, 0.0, set[str]()
    for case in cases:
        for chosen in (own, every):
            for name, found in zip(case.names, case.search(chosen), strict=True):
                for each in found:
                    count, names = count + 1, names | set(each.terms)
                    wrong = _off(each)
                    if not wrong <= off:  # NaN too
                        off, worst = wrong, f"{shown(name)}: score {each.score:.9f}, terms {dict(each.terms)}"
    sentence = f"the terms ({', '.join(sorted(names))}) of {count:,} scores add up {within(off)}"
    if not off <= EXACT:
        sentence = f"terms do not add up to their score: {off:.1e} is missing or too much"
    return judged(off <= EXACT, sentence, figures={"scores": count, "largest_difference": off}, worst=worst)


def _off(hypothesis: Hypothesis) -> float:
    """By how much its sums are wrong."""
    steps = len(hypothesis.symbols) + hypothesis.is_finished
    if len(hypothesis.token_log_probs) != steps:
        return math.inf
    of_terms = abs(math.fsum(hypothesis.terms.values()) - hypothesis.score)
    of_tokens = abs(math.fsum(hypothesis.token_log_probs) - hypothesis.log_prob)
    return math.nan if math.isnan(of_terms + of_tokens) else max(of_terms, of_tokens)


def _gives_attention(cases: Sequence[Case], settings: SearchConfig) -> bool:
    if settings.coverage == 0:
        return True
    try:
        cases[0].search(settings)
    except UsageError:
        return False
    return True
