"""The search that the settings name, and the constraints that they make for every output."""

from collections.abc import Sequence

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.search.beam import beam_search
from seqloom.search.constraints import (
    All,
    Constraint,
    Constraints,
    Lengths,
    NoRepeat,
    Show,
    check,
)
from seqloom.search.diverse import diverse_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.sampling import Sampling, sample_search
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder


def decode(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    *,
    constraints: Constraints | None = None,
    keys: Sequence[int] | None = None,
    recorder: Recorder | None = None,
    show: Show | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence by the search that the settings name.

    `constraints` come on top of those that the settings make for every sentence; `keys` distinguish sentences where
    outputs are drawn at random; `recorder` gets the candidates of a beam search; `show` is how symbols are
    written in messages.
    """
    bound = constraints_for(source, settings, constraints, end=stepper.end, show=show)
    if settings.method == "sample":
        sampling = Sampling(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            seed=settings.seed,
        )
        return sample_search(stepper, source, settings, sampling=sampling, keys=keys, constraints=bound)
    if settings.mode != "seqloom":
        if bound is not None or recorder is not None:
            raise UsageError(
                f"search.mode={settings.mode} supports neither constraints nor traces; set search.mode=seqloom"
            )
        from seqloom.search.peers.search import peer_search  # training does not need it

        return peer_search(
            stepper,
            source,
            mode=settings.mode,
            limits=settings.limits(source),
            beam=settings.beam,
            nbest=settings.nbest,
            length_penalty=settings.peer_length_penalty,
        )
    if settings.groups > 1:
        if bound is not None:
            raise UsageError(
                f"search.groups={settings.groups} divides the beam into groups, which do not support constraints; "
                "set search.groups=1 or leave the constraints out"
            )
        return diverse_search(stepper, source, settings, groups=settings.groups, diversity=settings.diversity)
    if settings.beam == 1 and bound is None and recorder is None:
        return [[hypothesis] for hypothesis in greedy_search(stepper, source, settings)]
    return beam_search(stepper, source, settings, constraints=bound, recorder=recorder)


def constraints_for(
    source: Source, settings: SearchConfig, given: Constraints | None, *, end: int, show: Show | None = None
) -> Constraints | None:
    """The constraints of each sentence, given ones and those of the settings; None if there are none at all.

    Those that exclude each other are an error before any work is done.
    """
    lengths, limits = source.lengths.tolist(), settings.hard_limits(source)
    if given is not None and len(given) != len(limits):
        raise UsageError(f"got {len(given)} constraints for {len(limits)} sentences; each sentence needs one")
    found = [
        _of_one(settings, None if given is None else given[number], length=length, limit=limit, end=end, show=show)
        for number, (length, limit) in enumerate(zip(lengths, limits, strict=True))
    ]
    return found if any(constraint is not None for constraint in found) else None


def _of_one(
    settings: SearchConfig, given: Constraint | None, *, length: int, limit: int, end: int, show: Show | None
) -> Constraint | None:
    parts: list[Constraint] = [] if given is None else list(All((given,)).parts)
    if settings.no_repeat:
        parts.append(NoRepeat(settings.no_repeat))
    least = min(settings.least(length), limit) - 1  # symbols before end
    needs_end = any(part.needs_limit for part in parts)
    if least > 0 or needs_end:
        # With its maximum length known, a hypothesis gets its forced words in before it is cut there, and is not cut
        # where its text would become a forbidden word.
        parts.append(Lengths(max(0, least), limit - 1 if needs_end else None, end))
    if not parts:
        return None
    together = All(tuple(parts))
    check(together, most=limit - 1, show=show)
    return together
