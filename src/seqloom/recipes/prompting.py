"""Writing on: a stepper that has read a text already, and goes on with it."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN


class Continuing:
    """A language model that goes on after a prompt.

    The prompt is read symbol by symbol and left out of the score. The end of a line is read as the beginning of the
    next, as in training. A model that does not read on over the ends of lines begins with the last line of the prompt.

    PAD and BEGIN are never written, nor is `<unk>` unless it is asked for. Where the text goes past the ends of lines,
    END is a symbol as any other, and nothing ends the text but its length.
    """

    def __init__(
        self,
        stepper: Stepper,
        lines: Sequence[Sequence[int]],
        *,
        reads_on: bool,
        past_line_ends: bool = False,
        has_unknown: bool = False,
    ) -> None:
        kept = lines if reads_on else lines[-1:]
        prompt = [symbol for line in kept for symbol in (stepper.begin, *line)]
        self._stepper, self._read = stepper, prompt[:-1]
        self._begin = prompt[-1]
        self._past_line_ends = past_line_ends
        self._left_out = [PAD, BEGIN, *([] if has_unknown else [UNKNOWN])]

    @property
    def begin(self) -> int:
        return self._begin

    @property
    def end(self) -> int:
        # PAD is never offered, so a text that ends with PAD goes on to the maximum length.
        return PAD if self._past_line_ends else self._stepper.end

    def start(self, source: Source) -> State:
        state = self._stepper.start(source)
        for symbol in self._read:
            state = self._stepper.step(state, source.lengths.new_full((len(source.lengths),), symbol)).state
        return state

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        step = self._stepper.step(state, torch.where(last == END, self._stepper.begin, last))
        log_probs = step.log_probs.clone()
        log_probs[:, self._left_out] = -torch.inf
        return Step(log_probs, step.state)


def split_lines(symbols: Sequence[int]) -> list[list[int]]:
    """The symbols of each line, without the ENDs between them."""
    lines: list[list[int]] = [[]]
    for symbol in symbols:
        if symbol == END:
            lines.append([])
        else:
            lines[-1].append(symbol)
    return lines
