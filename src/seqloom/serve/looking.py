"""What a worker tells the workbench about a model: what it did with a text, and why.

A question is an object, written as JSON, so that it passes the queue as texts do; its answer is an object. What is
measured is in `seqloom.look`.
"""

import json
import math
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from seqloom.apps.language_model import LanguageModel, PromptedStepper
from seqloom.apps.request import ConstraintSet
from seqloom.apps.translator import Translator
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.look.attention import attention_of_pair
from seqloom.look.attribution import METHODS, attribution_of
from seqloom.look.beam_tree import lay_out, tree_record, visible
from seqloom.look.confidence import PieceConfidence, confidence_of
from seqloom.look.gradients import GradientPair, connectivity_of, look_at_fading, text_lines
from seqloom.look.inside import ablate, cross_attention_of, cross_group, without_heads
from seqloom.look.words import PieceSide, attention_of_words, source_side, target_side
from seqloom.models.reading import RecurrentReader
from seqloom.runs.loading import LoadedModel, in_words
from seqloom.runs.readers import encode_lines, require_reader
from seqloom.runs.translation import kept_dev_lines
from seqloom.search.candidates import DeadEnd
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.sampling import choices_of
from seqloom.search.settings import SearchConfig
from seqloom.serve.completion import Detokenizer
from seqloom.serve.groups import Action, Emit, GroupCancellation, Groups
from seqloom.text.glossary import Glossary, ways_to_write
from seqloom.text.normalise import is_blank
from seqloom.text.scripts import script_of
from seqloom.text.tokenizer import Tokenizer

Question = Mapping[str, Any]
Answer = Callable[[Question, Callable[[], bool]], dict[str, Any]]
"""The answer to a question; the function says whether nobody waits for it any more."""

WATCHED: Mapping[str, Any] = {"method": "beam", "groups": 1, "mode": "seqloom"}
"""Search settings under which candidates are recorded."""

ALTERNATIVES = 4
"""Translations that a search looks for, the best among them."""

MAX_PIECES = 256
"""Pieces of a side that are looked into; maps grow with their product."""

MAX_MAP_NUMBERS = 400_000
"""Weights of all heads that an answer holds."""

MAX_GRADIENT_PIECES = 96
"""Pieces of a side for which gradients are computed: their time grows with the cube of the length."""

MAX_CHANGED_MODELS = 8
"""Copies of a model with some heads switched off, which share all other weights."""

NEXT_TOKENS = 10

ENGINE = (
    "this server translates with CTranslate2, which records nothing of its search; start it without --engine to look "
    "inside"
)
NO_SOURCE = "a language model reads no source; translators of kind transformer or seq2seq do"
NO_ATTENTION = (
    "the decoder of this model sees the source through one vector and has no attention; a transformer has it, and "
    "seq2seq with model.attention=bilinear"
)
NO_HEADS = "this model has one attention without heads; a transformer has several heads in each layer"


def answering(answer: Answer) -> Action:
    """An action that answers questions one by one."""

    def act(
        groups: Groups, _options: Mapping[str, Any], cancellation: GroupCancellation, _emit: Emit
    ) -> list[list[Any]]:
        answers: list[list[Any]] = []
        for number, questions in enumerate(groups):

            def is_cancelled(number: int = number) -> bool:
                return number in cancellation.groups

            answers.append([])
            for question in questions:
                if not is_cancelled():
                    answers[-1].append(answer(json.loads(question), is_cancelled))
        return answers

    return act


# --- translators ------------------------------------------------------------------------------------------------------


class TranslatorLooking:
    """Looks into one translator."""

    def __init__(self, translator: Translator, path: Path, *, has_engine: bool = False) -> None:
        self._translator, self._path, self._has_engine = translator, path, has_engine
        self._without = lru_cache(maxsize=MAX_CHANGED_MODELS)(self._make_without)

    def actions(self) -> dict[str, Action]:
        """By name."""
        answers = {
            "about": self.about,
            "look": self.look,
            "attention": self.attention,
            "reasons": self.reasons,
            "reach": self.reach,
            "pieces": self.pieces,
            "dev_lines": self.dev_lines,
        }
        return {name: answering(answer) for name, answer in answers.items()}

    # what can be looked at

    def about(self, _question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """What the model is, what can be looked at, and why the rest cannot."""
        config, search = self._translator.config, self._translator.config.search
        why_not = self._why_not
        heads = config.model.attention_heads
        attention = None
        if "attention" not in why_not:
            attention = {"layers": 1, "heads": 1} if heads is None else {"layers": heads[0], "heads": heads[1]}
        has_alpha = search.length_normalisation in ("gnmt", "power")
        return {
            "kind": config.model.kind,
            "parameters": self._translator.card.parameters,
            "can": {name: name not in why_not for name in ("watch", "attention", "heads", "reasons", "reach")},
            "why_not": why_not,
            "attention": attention,
            "search": {"beam": search.beam, "alpha": search.alpha if has_alpha else None, "stop": search.stop},
            "examples": [source for source, _ in self._dev_lines(most=3)],
            "has_dev_lines": bool(self._dev_lines(most=1)),
        }

    @cached_property
    def _why_not(self) -> dict[str, str]:
        every = ("watch", "attention", "heads", "reasons", "reach")
        if self._has_engine:
            return dict.fromkeys(every, ENGINE)
        loaded = self._translator.loaded
        if not isinstance(loaded, LoadedModel):
            kind = self._translator.config.model.kind
            sentence = (
                f"a model of kind {kind} looks phrases up in tables and has a search of its own; "
                "models of kind transformer and seq2seq show how they decide"
            )
            return dict.fromkeys(every, sentence)
        found: dict[str, str] = {}
        if not self._translator.can_attend:
            found |= {"attention": NO_ATTENTION, "heads": NO_ATTENTION}
        elif loaded.config.model.attention_heads is None:
            found["heads"] = NO_HEADS
        pair = torch.tensor([UNKNOWN, END], device=loaded.device)
        for name, attempt in (
            ("reasons", lambda: attribution_of(loaded.model, pair, pair, method="gradient_x_input")),
            ("reach", lambda: connectivity_of(loaded.model, pair, pair)),
        ):
            try:
                attempt()
            except ModelError as error:
                found[name] = str(error)
        return found

    def _require(self, what: str) -> LoadedModel:
        if reason := self._why_not.get(what):
            raise UsageError(reason)
        return cast("LoadedModel", self._translator.loaded)

    # a search, and all that is seen of it

    def look(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Translate a sentence, after a prefix where one is given: its search, attention and confidence."""
        begun = time.perf_counter()
        self._require("watch")
        translator = self._changed(question.get("off") or ())
        loaded, source = cast("LoadedModel", translator.loaded), question["source"]
        if is_blank(source):
            raise DataError("the sentence is blank")
        settings = search_of(translator.config.search, question.get("search") or {})
        constraints = ConstraintSet(prefix_ids=tuple(question.get("prefix") or ()))
        if terms := question.get("terms"):
            target = translator.tokenizers.target
            known = tuple((one, other) for one, other in terms if ways_to_write(other, target))
            glossary = Glossary(known).read_by(translator.tokenizers.source) if known else None
            constraints = constraints if glossary is None else constraints.with_terms(source, glossary)
        try:
            watched = translator.watch(source, search=settings, constraints=constraints)
        except DeadEnd as error:
            raise UsageError(f"the sentence {error.reason}") from error
        hypotheses = [each.hypotheses[0] for each in watched.translations]
        best = hypotheses[0]
        pair = GradientPair(self._source_ids(source), ids_of(best))
        require_length(pair, MAX_PIECES)
        tokenizers = translator.tokenizers
        sides = source_side(tokenizers.source, source, pair.source), target_side(tokenizers.target, pair.target)
        tree = lay_out(watched.trace, hypotheses, piece=watched.pieces, text=tokenizers.target.decode)
        answer = {
            "source": side_record(sides[0]),
            "target": side_record(sides[1], confidence_of(loaded, pair)),
            "translation": watched.translations[0].text,
            "score": best.score,
            "log_prob": best.log_prob,
            "hypotheses": [
                {"ids": ids_of(each), "text": tokenizers.target.decode(each.symbols), "score": each.score,
                 "terms": dict(each.terms)}
                for each in hypotheses
            ],
            "tree": tree_record(tree),
            "search": {"beam": settings.beam, "alpha": settings.alpha, "stop": settings.stop, "nbest": settings.nbest},
            **self._attention_record(loaded, pair, sides, settings),
        }  # fmt: skip
        return {**answer, "seconds": time.perf_counter() - begun}

    def _attention_record(
        self, loaded: LoadedModel, pair: GradientPair, sides: tuple[PieceSide, PieceSide], settings: SearchConfig
    ) -> dict[str, Any]:
        weights = attention_of_pair(loaded, pair, settings) if self._translator.can_attend and pair.target else None
        if weights is None:
            return {"attention": None, "words": {"attention": None}}
        by_word = attention_of_words(weights, sides[1].words, sides[0].words)
        return {"attention": rounded(weights), "words": {"attention": rounded(by_word)}}

    def _changed(self, off: Sequence[Sequence[int]]) -> Translator:
        """The translator with these heads switched off."""
        if not off:
            return self._translator
        self._require("heads")
        return self._without(tuple(sorted({(layer, head) for layer, head in off})))

    def _make_without(self, off: tuple[tuple[int, int], ...]) -> Translator:
        loaded = cast("LoadedModel", self._translator.loaded)
        return Translator(replace(loaded, model=without_heads(loaded.model, off)))

    def _source_ids(self, text: str) -> list[int]:
        return [*self._translator.tokenizers.source.encode(text), END]

    def _pair(self, question: Question, most: int) -> GradientPair:
        """A source with symbols of a translation."""
        if is_blank(question["source"]):
            raise DataError("the sentence is blank")
        target, size = list(question["target"]), self._translator.tokenizers.target.size
        if not target:
            raise UsageError("target has no ids; give those of a translation")
        if wrong := [each for each in target if each in (PAD, BEGIN) or not 0 <= each < size]:
            raise UsageError(f"{wrong[0]} in target is not the id of a piece; give ids below {size:,} from /api/look")
        if END in target[:-1]:
            raise UsageError(f"target has the end symbol ({END}) before its end")
        pair = GradientPair(self._source_ids(question["source"]), target)
        require_length(pair, most)
        return pair

    # lenses

    def attention(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The attention of every head to the source, and by how much log P falls without it."""
        loaded = self._require("attention")
        pair = self._pair(question, MAX_PIECES)
        heads = loaded.config.model.attention_heads
        layers, count = heads or (1, 1)
        if (numbers := layers * count * len(pair.source) * len(pair.target)) > MAX_MAP_NUMBERS:
            raise UsageError(
                f"all heads have {numbers:,} weights for this sentence, and at most {MAX_MAP_NUMBERS:,} are sent; give "
                "a shorter one"
            )
        if heads is None:
            mean = attention_of_pair(loaded, pair, self._translator.config.search)
            return {"layers": 1, "heads": 1, "weights": [[rounded(mean)]], "cost": None}
        weights = cross_attention_of(loaded, pair)  # [layers, heads, target, source]
        name = cross_group(loaded)
        found = ablate(loaded, [pair], only=name)
        cost = found.tokens * found.costs[name]
        return {"layers": layers, "heads": count, "weights": rounded(weights), "cost": rounded(cost)}

    def reasons(self, question: Question, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Attributions of each target piece to each source piece."""
        loaded = self._require("reasons")
        method, steps = question.get("method", METHODS[0]), question.get("steps")
        pair = self._pair(question, MAX_GRADIENT_PIECES)
        source, target = (torch.tensor(side, device=loaded.device) for side in (pair.source, pair.target))
        found = attribution_of(loaded.model, source, target, method=method, steps=steps, is_cancelled=is_cancelled)
        if found is None:
            return {}
        return {"method": method, "matrix": rounded(found.matrix), "gap": found.gap, "steps": found.steps,
                "log_probs": rounded(found.log_probs)}  # fmt: skip

    def reach(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The norm of the gradient of each loss with respect to each input."""
        return reach_record(self._require("reach"), self._pair(question, MAX_GRADIENT_PIECES))

    def pieces(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """A text as the model reads it."""
        tokenizers = self._translator.tokenizers
        return pieces_record(tokenizers.target if question.get("side") == "target" else tokenizers.source, question)

    def dev_lines(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The dev lines of the run that the model is from, if it has kept them."""
        return {"pairs": self._dev_lines(most=int(question["limit"]))}

    def _dev_lines(self, *, most: int) -> list[tuple[str, str]]:
        return kept_dev_lines(self._path, self._translator.loaded, most=most)


def search_of(own: SearchConfig, given: Mapping[str, Any]) -> SearchConfig:
    """The search that is watched: the model's own with what a question changes."""
    own = own.with_own_rules() if own.mode == "huggingface" else own
    changes = {name: given[name] for name in ("beam", "alpha", "stop") if given.get(name) is not None}
    if "alpha" in changes and own.length_normalisation not in ("gnmt", "power"):
        changes["length_normalisation"] = "gnmt"
    beam = changes.get("beam", own.beam)
    changes |= {**WATCHED, "nbest": min(ALTERNATIVES, beam), "rerank": "none"}
    return SearchConfig(**{**own.model_dump(), **changes})


def ids_of(hypothesis: Hypothesis) -> list[int]:
    """The symbols of a hypothesis, with END where it was reached."""
    has_end = len(hypothesis.token_log_probs) > len(hypothesis.symbols)
    return [*hypothesis.symbols, *([END] if has_end else [])]


def require_length(pair: GradientPair, most: int) -> None:
    """Refuse what would take too long, or too much room."""
    if (longest := max(len(pair.source), len(pair.target))) > most:
        raise UsageError(
            f"the sentence has {longest} pieces, and at most {most} can be looked into; give a shorter one"
        )


# --- records ----------------------------------------------------------------------------------------------------------


def rounded(values: Any) -> Any:
    """Numbers as they are sent: to a millionth."""
    return np.round(np.asarray(values, np.float64), 6).tolist()


def side_record(side: PieceSide, confidence: Sequence[PieceConfidence] = ()) -> dict[str, Any]:
    """A side with its pieces and words."""
    pieces: list[dict[str, Any]] = []
    for at, (symbol, piece, span) in enumerate(zip(side.ids, side.pieces, side.spans, strict=True)):
        begin, end = span or (None, None)
        record = {"id": symbol, "text": piece, "shown": visible(piece), "unknown": symbol == UNKNOWN, "begin": begin,
                  "end": end}  # fmt: skip
        if confidence:
            sure = confidence[at]
            rivals = [
                {"id": r.symbol, "text": r.piece, "shown": visible(r.piece), "probability": r.probability}
                for r in sure.rivals
            ]
            record |= {"probability": sure.probability, "entropy": sure.entropy, "rivals": rivals}
        pieces.append(record)
    words = [
        {"text": word.text, "begin": word.begin, "end": word.end, "first": word.first, "last": word.last}
        for word in side.words
    ]
    return {"text": side.text, "pieces": pieces, "words": words}


def reach_record(loaded: LoadedModel, pair: GradientPair) -> dict[str, Any]:
    """The maps of one pair, or of one text."""
    finding = look_at_fading(loaded, pair)
    data = finding.data
    shown, maps = data["shown"], []
    side = "target" if "target" in shown else "text"
    written = [visible(piece) for piece in shown[side]]
    if "source" in shown:
        columns = [visible(piece) for piece in shown["source"]]
        maps.append({"name": "source", "rows": written, "columns": columns, "matrix": rounded(shown["by_source"])})
    read = ["<s>", *written[:-1]]
    maps.append({"name": side, "rows": written, "columns": read, "matrix": rounded(shown[f"by_{side}"])})
    profile = [{"lag": lag, "norm": norm} for lag, norm in enumerate(data[side]["means"])]
    return {"maps": maps, "profile": profile, "half_life": data[side]["half_life"], "sentence": finding.sentence}


DIRECTIONS = {"L": "ltr", "R": "rtl", "AL": "rtl"}


def pieces_record(tokenizer: Tokenizer, question: Question) -> dict[str, Any]:
    """The pieces of a text, with script and direction of their first letter."""
    text = question["text"]
    side = source_side(tokenizer, text, tokenizer.encode(text))
    found = []
    for symbol, piece, span in zip(side.ids, side.pieces, side.spans, strict=True):
        letters = side.text[slice(*span)] if span is not None and span[0] < span[1] else piece
        letter = next((each for each in letters if each.isalpha()), "")
        directions = [DIRECTIONS[kind] for kind in map(unicodedata.bidirectional, letters) if kind in DIRECTIONS]
        begin, end = span or (None, None)
        found.append({"id": symbol, "text": piece, "shown": visible(letters if symbol == UNKNOWN else piece),
                      "unknown": symbol == UNKNOWN, "script": script_of(letter) if letter else None,
                      "direction": next(iter(directions), "neutral"), "begin": begin, "end": end})  # fmt: skip
    return {"text": side.text, "shown": visible(text), "pieces": found}


# --- language models --------------------------------------------------------------------------------------------------


class LanguageModelLooking:
    """Looks into one language model."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def actions(self) -> dict[str, Action]:
        """By name."""
        answers = {"about": self.about, "next": self.next, "reach": self.reach, "pieces": self.pieces}
        return {name: answering(answer) for name, answer in answers.items()}

    def about(self, _question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """What the model is, and what can be looked at."""
        why_not = dict.fromkeys(("watch", "attention", "heads", "reasons"), NO_SOURCE)
        if reason := self._why_no_reach():
            why_not["reach"] = reason
        names = ("watch", "attention", "heads", "reasons", "reach")
        return {
            "kind": self._model.config.model.kind,
            "parameters": self._model.card.parameters,
            "can": {name: name not in why_not for name in names},
            "why_not": why_not,
            "attention": None,
            "search": None,
            "examples": [],
            "has_dev_lines": False,
        }

    def _why_no_reach(self) -> str | None:
        loaded = self._model.loaded
        if isinstance(loaded, LoadedModel) and isinstance(require_reader(loaded), RecurrentReader):
            return None
        return f"reach is measured in recurrent language models, and {in_words(loaded.config)}"

    def next(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The most probable next tokens of a prompt, and how probable the prompt itself is."""
        tokenizer, prompt = self._model.tokenizer, question["prompt"]
        lines = [tokenizer.encode(line) for line in prompt.split("\n")]
        settings = SearchConfig(method="sample", temperature=question["temperature"], top_p=question["top_p"])
        stepper = PromptedStepper(
            self._model.stepper(), lines, reads_across_lines=self._model.reads_across_lines, past_line_ends=True
        )
        if stepper.longest is not None and stepper.prompt >= stepper.longest:
            raise UsageError(
                f"the prompt has {sum(map(len, lines)):,} tokens, and this model reads {stepper.longest:,} at most; "
                "give a shorter one"
            )
        one = torch.ones(1, 1, dtype=torch.long, device=self._model.loaded.device)
        with torch.inference_mode():
            step = stepper.step(stepper.start(Source(one, one[0])), torch.tensor([stepper.begin], device=one.device))
            choices = choices_of(step, settings)
        chances = choices.weights[0] / choices.weights[0].sum()
        best = chances.topk(min(NEXT_TOKENS, len(chances)))
        detokenizer = Detokenizer(tokenizer)
        for symbol in lines[-1]:
            detokenizer.add(symbol)
        tokens = [
            {"id": symbol, "text": detokenizer.preview(symbol), "probability": chance,
             "shown": "\u21b5" if symbol == END else visible(tokenizer.piece(symbol))}
            for symbol, chance in zip(choices.symbols[0, best.indices].tolist(), best.values.tolist(), strict=True)
            if chance > 0
        ]  # fmt: skip
        return {"tokens": tokens, **self._prompt_record(prompt)}

    def _prompt_record(self, prompt: str) -> dict[str, Any]:
        """How probable each token of a prompt is, apart from the end of its last line, which is still being written."""
        tokenizer = self._model.tokenizer
        text = encode_lines(tokenizer, prompt.split("\n"))
        ids = text.ids[:-1].tolist()
        if not ids:
            return {"perplexity": None, "pieces": []}
        log_probs = self._model.mixed(self._model.log_probs(text))[:-1]
        pieces = [
            {"shown": "\u21b5" if symbol == END else visible(tokenizer.piece(symbol)), "probability": math.exp(value),
             "unknown": symbol == UNKNOWN}
            for symbol, value in zip(ids, log_probs.tolist(), strict=True)
        ]  # fmt: skip
        with np.errstate(over="ignore"):
            return {"perplexity": float(np.exp(-log_probs.mean())), "pieces": pieces}

    def reach(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The norm of the gradient of each loss with respect to each token before it."""
        if reason := self._why_no_reach():
            raise UsageError(reason)
        loaded = cast("LoadedModel", self._model.loaded)
        (pair, *_) = text_lines(loaded, [question["source"]])
        require_length(pair, MAX_GRADIENT_PIECES)
        return reach_record(loaded, pair)

    def pieces(self, question: Question, _is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """A text as the model reads it."""
        return pieces_record(self._model.tokenizer, question)
