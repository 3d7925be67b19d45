"""The search that the settings name, and the constraints that they make for every output."""

from collections.abc import Callable, Mapping, Sequence

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.search.beam import BeamSearch
from seqloom.search.constraints import All, Constraint, Constraints, Lengths, NoRepeat, Show, check
from seqloom.search.diverse import diverse_search
from seqloom.search.driver import Cancellation, Strategy, search
from seqloom.search.greedy import GreedySearch
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.sampling import sample_search
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder

STRATEGIES: Mapping[str, Callable[[int, int], Strategy]] = {
    "beam": BeamSearch,
}
"""Searches with one beam per sentence, by `search.method`; each takes the size of the beam and the end symbol."""


def decode(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    *,
    constraints: Constraints | None = None,
    keys: Sequence[int] | None = None,
    recorder: Recorder | None = None,
    show: Show | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence by the search that the settings name.

    `constraints` are added to those that the settings make for every sentence; `keys` distinguish sentences where
    outputs are drawn at random; `recorder` gets the candidates of a beam search; `show` is how symbols are
    written in messages. A sentence that is cancelled has no hypotheses; those of the others do not change.
    """
    if settings.mode != "seqloom":
        if recorder is not None or (constraints is not None and any(each is not None for each in constraints)):
            raise UsageError(
                f"search.mode={settings.mode} supports neither constraints nor traces; set search.mode=seqloom"
            )
        from seqloom.search.peers.rules import rules_for  # training does not need them
        from seqloom.search.peers.search import peer_search

        return peer_search(
            stepper,
            source,
            rules_for(settings.mode, settings),
            limits=settings.limits(source),
            least=[settings.least(length) - 1 for length in source.lengths.tolist()],
            beam=settings.beam,
            nbest=settings.nbest,
            cancellation=cancellation,
        )
    bound = constraints_for(source, settings, constraints, end=stepper.end, show=show)
    if settings.method == "sample":
        return sample_search(stepper, source, settings, keys=keys, constraints=bound, cancellation=cancellation)
    if settings.groups > 1:
        if bound is not None:
            raise UsageError(
                f"search.groups={settings.groups} divides the beam into groups, which do not support constraints; "
                "set search.groups=1 or leave the constraints out"
            )
        return diverse_search(stepper, source, settings, cancellation=cancellation)
    if settings.method == "beam" and settings.beam == 1 and bound is None and recorder is None:
        limits = settings.hard_limits(source)  # as in `greedy_search`
        found = search(stepper, source, GreedySearch(), settings, limits=limits, cancellation=cancellation)
        return [beam for [beam] in found]
    strategy = STRATEGIES[settings.method](settings.beam, stepper.end)
    found = search(stepper, source, strategy, settings, constraints=bound, recorder=recorder, cancellation=cancellation)
    return [beam for [beam] in found]


def constraints_for(
    source: Source, settings: SearchConfig, given: Constraints | None, *, end: int, show: Show | None = None
) -> Constraints | None:
    """The constraints of each sentence, given ones and those of the settings; None if there are none at all.

    Those that exclude each other are an error before any work is done.
    """
    limits = settings.hard_limits(source)
    if given is not None and len(given) != len(limits):
        raise UsageError(f"got {len(given)} constraints for {len(limits)} sentences; each sentence needs one")
    found: list[Constraint | None] = []
    for number, (length, limit) in enumerate(zip(source.lengths.tolist(), limits, strict=True)):
        chosen = [
            None if given is None else given[number],
            NoRepeat(settings.no_repeat) if settings.no_repeat else None,
        ]
        together = All(tuple(each for each in chosen if each is not None))
        least = max(0, min(settings.least(length), limit) - 1)  # symbols before end
        needs_limit = any(part.needs_limit for part in together.parts)
        if least or needs_limit:
            # With its maximum length known, a hypothesis gets its forced words in before it is cut there, and is not
            # cut where its text would become a forbidden word.
            together = All((together, Lengths(least, limit - 1 if needs_limit else None, end)))
        if together.parts:
            check(together, most=limit - 1, show=show)
        found.append(together if together.parts else None)
    return found if any(constraint is not None for constraint in found) else None
