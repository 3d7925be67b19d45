"""The API of the workbench, under `/api/`: what its page asks for, in JSON.

    GET  /api/models                     the models, what can be looked at, and why the rest cannot
    POST /api/translate                  a text, sentence by sentence
    POST /api/look                       one sentence: pieces, confidence, attention, the tree of the search
    POST /api/attention reasons reach    the lenses on a translation, which is given by its ids
    POST /api/pieces, /api/next          a text as a model reads it; the next tokens of a language model
    POST /api/sentences                  pairs translated and scored, as an event stream
    GET  /api/runs, /api/runs/NAME/events   training runs, and what they report, as an event stream

Only pages of the server itself may call it: a request needs the header `x-seqloom: 1`, which no form and no page of
another origin can send, and must not say that it comes from another origin.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from starlette.responses import Response

from seqloom.metrics.scoring import Bootstrap, paired_bootstrap
from seqloom.metrics.translation import Chrf, line_scores, score_named
from seqloom.runs.translator import join
from seqloom.serve.description import TEXT, Schema, body, list_of, object_of, query, responses
from seqloom.serve.http import JSON, Call, json_response, json_text, require_unicode, urlsplit_host
from seqloom.serve.models import ServedModel, name_of_language
from seqloom.serve.operations import EventStream, Operation, refusal_of
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.runs import EVENTS, EventReader, find_runs, run_of, summarise_run
from seqloom.serve.service import Service, join_lines, split_lines
from seqloom.text.glossary import Glossary
from seqloom.text.sentences import sentence_borders
from seqloom.version import __version__

MAX_TERMS = 200
MAX_ALTERNATIVES = 3
"""Alternatives to a translation; a smaller beam finds fewer."""
MAX_BEAM = 16
MAX_OFF = 256
MAX_PAIRS = 500
"""Pairs that are translated and scored together."""
PAIRS_AT_ONCE = 16
BOOTSTRAP_SEED = 1
MAX_STREAMS = 64
"""Streams of runs that are open at a time."""
POLL_SECONDS = 0.5
"""How often the file of a run is looked at."""
STATE_POLLS = 4
"""Polls without anything new after which it is asked whether the run still trains."""
STOPS = ("exact", "k_finished", "first")

OTHER_ORIGIN = "only pages of this server may call /api/"


@dataclass(frozen=True)
class Workbench:
    """Errors are `{"error": {"message": …}}`."""

    name: str = "workbench"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as the page reads it."""
        return json_response({"error": {"message": refusal.message}}, refusal.status)


WORKBENCH = Workbench()


def admit(call: Call) -> None:
    """Refuse what is not from a page of this server, and count the request."""
    headers = call.request.headers
    if headers.get("x-seqloom") != "1":
        raise Refusal(403, "the header x-seqloom: 1 is missing; it shows that a page of this server sends the request")
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none"):
        raise Refusal(403, OTHER_ORIGIN)
    own = {headers.get("host", "").lower(), urlsplit_host(call.base_url)}
    if origin is not None and urlsplit_host(origin) not in own:
        raise Refusal(403, OTHER_ORIGIN)
    if call.request.method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(415, f"the content type must be {JSON}")
    call.authorise(call.bearer(), invalid=401)


def read(call: Call) -> "Fields":
    """The fields of a request that is admitted."""
    admit(call)
    given = call.json()
    if not isinstance(given, dict):
        raise bad_request("the body must be a JSON object")
    require_unicode(given)
    return Fields(given)


@dataclass(frozen=True)
class Fields:
    """The fields of a request, each checked when it is read. null is as good as missing."""

    given: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self.given.get(name)
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
        return value

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number within bounds, or None."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise bad_request(f"{name} must be a whole number from {least} to {most:,}")
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds, or None."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise bad_request(f"{name} must be a number from {least:g} to {most:g}")
        return float(value)

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        """One of some words, or None."""
        value = self.given.get(name)
        if value is not None and value not in choices:
            raise bad_request(f"{name} must be one of {', '.join(choices)}")
        return value

    def part(self, name: str) -> "Fields":
        """The fields of an object."""
        value = self.given.get(name) or {}
        if not isinstance(value, dict):
            raise bad_request(f"{name} must be an object")
        return Fields(value)

    def ids(self, name: str, most: int) -> list[int]:
        """A list of ids, which may be missing."""
        value = self.given.get(name) or []
        if not isinstance(value, list) or not all(_is_whole(each) for each in value):
            raise bad_request(f"{name} must be a list of whole numbers")
        if len(value) > most:
            raise bad_request(f"{name} has {len(value):,} ids; the limit is {most:,}")
        return value

    def pairs(self, name: str, kind: type, most: int) -> list[tuple[Any, Any]]:
        """A list of pairs, which may be missing."""
        value = self.given.get(name) or []
        is_right = isinstance(value, list) and all(
            isinstance(pair, list) and len(pair) == 2 and all(_is_a(each, kind) for each in pair) for pair in value
        )
        if not is_right:
            what = "strings" if kind is str else "whole numbers"
            raise bad_request(f"{name} must be a list of pairs of {what}")
        if len(value) > most:
            raise bad_request(f"{name} has {len(value):,} pairs; the limit is {most:,}")
        return [(first, second) for first, second in value]

    def search(self) -> dict[str, Any]:
        """What is changed of the search."""
        part = self.part("search")
        changes = {
            "beam": part.whole("beam", 1, MAX_BEAM),
            "alpha": part.number("alpha", 0.0, 10.0),
            "stop": part.choice("stop", STOPS),
        }
        return {name: value for name, value in changes.items() if value is not None}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_a(value: Any, kind: type) -> bool:
    return _is_whole(value) if kind is int else isinstance(value, kind)


def find(service: Service, fields: Fields, purpose: str | None = None, *, name: str = "model") -> ServedModel:
    """The model that a request names."""
    wanted = fields.given.get(name)
    found = service.models.by_name.get(wanted) if isinstance(wanted, str) else None
    if found is None or found.purpose not in ((purpose,) if purpose else ("translator", "language model")):
        names = ", ".join(each.name for each in service.models.models if purpose in (None, each.purpose))
        what = purpose or "model"
        raise Refusal(
            404, f"there is no {what} of this name; " + (f"the names are {names}" if names else "none is served")
        )
    return found


# --- models -----------------------------------------------------------------------------------------------------------


async def list_models(service: Service, call: Call) -> Response:
    """`GET /api/models`."""
    admit(call)
    limits = service.state.settings
    models = [each for each in service.models.models if each.purpose in ("translator", "language model")]
    facts = await asyncio.gather(*(facts_of(service, call, model) for model in models))
    return json_response(
        {
            "name": limits.name,
            "version": __version__,
            "limits": {"characters": limits.characters, "texts": limits.texts},
            "needs_key": service.state.keys.is_required,
            "has_runs": bool(service.runs),
            "models": [_model_record(model, known) for model, known in zip(models, facts, strict=True)],
        }
    )


async def facts_of(service: Service, call: Call, model: ServedModel) -> Mapping[str, Any]:
    """What a worker knows of a model. It is asked once."""
    if model not in service.facts:
        service.facts[model] = await ask(service, call, model, "about", {})
    return service.facts[model]


def _model_record(model: ServedModel, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": model.name,
        "purpose": model.purpose,
        "source": model.source,
        "target": model.target,
        "source_name": name_of_language(model.source) if model.source else None,
        "target_name": name_of_language(model.target) if model.target else None,
        "scores": list(model.scores),
        **facts,
    }


async def ask(
    service: Service, call: Call, model: ServedModel, what: str, question: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer of a worker to one question."""
    written = json.dumps(question, ensure_ascii=False)
    try:
        (answer,) = await service.pool.submit(model.name, what, [written], {}, deadline=call.deadline)
    except Refusal as refusal:  # of the worker, which knows where the model is
        raise replace(refusal, message=service.state.without_paths(refusal.message)) from refusal
    found: dict[str, Any] = answer
    return found


# --- translation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentencePlace:
    """A sentence of a text."""

    line: int
    begin: int
    end: int


def sentences_of(text: str) -> list[SentencePlace]:
    """Where the sentences of a text are, without the white space around them."""
    found, first = [], 0
    for number, line in enumerate(split_lines(text)):
        start = first + len(line.before)
        borders = [0, *sentence_borders(line.line), len(line.line)]
        for begin, end in pairwise(borders):
            piece = line.line[begin:end]
            if piece.strip():
                at = start + begin + len(piece) - len(piece.lstrip())
                found.append(SentencePlace(number, at, at + len(piece.strip())))
        first = start + len(line.line) + len(line.after)
    return found


async def translate(service: Service, call: Call) -> Response:
    """`POST /api/translate`."""
    fields = read(call)
    model, (text,) = find(service, fields, "translator"), service.check_texts(call, [fields.text("text")])
    terms, search = fields.pairs("terms", str, MAX_TERMS), fields.search()
    places = sentences_of(text)
    only = fields.whole("sentence", 0, max(0, len(places) - 1))
    chosen = range(len(places)) if only is None else range(only, min(only + 1, len(places)))
    glossary = Glossary(tuple(terms)) if terms else None
    options = {"nbest": 1 + MAX_ALTERNATIVES, "tags": True, "split": "long", "search": search, "unknown": True}
    loop = asyncio.get_running_loop()
    begun = loop.time()
    sources = [text[places[at].begin : places[at].end] for at in chosen]
    records = await service.translate_lines(call, sources, (model,), options, glossary)
    found = dict(zip(chosen, records, strict=True))
    sentences = []
    for at, place in enumerate(places):
        record = found.get(at, {})
        others = [each["text"] for each in record.get("alternatives", ())]
        sentences.append(
            {
                "begin": place.begin,
                "end": place.end,
                "source": text[place.begin : place.end],
                "translation": record.get("text"),
                "confidence": record.get("confidence"),
                "is_calibrated": bool(record.get("is_calibrated")),
                "alternatives": [each for each in dict.fromkeys(others) if each != record.get("text")],
            }
        )
    whole = None
    if only is None:
        lines = split_lines(text)
        by_line: list[list[str]] = [[] for _ in lines]
        for place, record in zip(places, records, strict=True):
            by_line[place.line].append(record["text"])
        whole = join_lines(lines, [join(some, inside_word=[False] * len(some)).text for some in by_line])
    unknown, tokens = (sum(each.get("unknown", (0, 0))[side] for each in records) for side in (0, 1))
    return json_response(
        {
            "seconds": loop.time() - begun,
            "unknown_share": unknown / max(1, tokens),
            "sentences": sentences,
            "text": whole,
        }
    )


# --- looking into one sentence ----------------------------------------------------------------------------------------


async def look(service: Service, call: Call) -> Response:
    """`POST /api/look`."""
    fields = read(call)
    model = find(service, fields, "translator")
    (source,) = service.check_texts(call, [fields.text("source")])
    question = {
        "source": source,
        "prefix": fields.ids("prefix", service.state.settings.output_tokens),
        "off": fields.pairs("off", int, MAX_OFF),
        "search": fields.search(),
        "terms": fields.pairs("terms", str, MAX_TERMS),
    }
    return json_response(await ask(service, call, model, "look", question))


async def attention(service: Service, call: Call) -> Response:
    """`POST /api/attention`."""
    return await _lens(service, call, "attention", read(call), {})


async def reasons(service: Service, call: Call) -> Response:
    """`POST /api/reasons`."""
    fields = read(call)
    method = fields.choice("method", ("gradient_x_input", "integrated_gradients", "occlusion"))
    return await _lens(
        service,
        call,
        "reasons",
        fields,
        {"method": method or "gradient_x_input", "steps": fields.whole("steps", 1, 512)},
    )


async def reach(service: Service, call: Call) -> Response:
    """`POST /api/reach`."""
    return await _lens(service, call, "reach", read(call), {}, purpose=None)


async def _lens(
    service: Service,
    call: Call,
    what: str,
    fields: Fields,
    options: Mapping[str, Any],
    *,
    purpose: str | None = "translator",
) -> Response:
    model = find(service, fields, purpose)
    (source,) = service.check_texts(call, [fields.text("source")])
    target = fields.ids("target", service.state.settings.output_tokens)
    return json_response(await ask(service, call, model, what, {"source": source, "target": target, **options}))


async def pieces(service: Service, call: Call) -> Response:
    """`POST /api/pieces`."""
    fields = read(call)
    model, (text,) = find(service, fields), service.check_texts(call, [fields.text("text")])
    side = fields.choice("side", ("source", "target")) or "source"
    return json_response(await ask(service, call, model, "pieces", {"text": text, "side": side}))


async def next_tokens(service: Service, call: Call) -> Response:
    """`POST /api/next`."""
    fields = read(call)
    model, (prompt,) = find(service, fields, "language model"), service.check_texts(call, [fields.text("prompt")])
    temperature, top_p = fields.number("temperature", 0.0, 100.0), fields.number("top_p", 1e-6, 1.0)
    question = {
        "prompt": prompt,
        "temperature": 1.0 if temperature is None else temperature,
        "top_p": 1.0 if top_p is None else top_p,
    }
    return json_response(await ask(service, call, model, "next", question))


# --- sentences --------------------------------------------------------------------------------------------------------


async def sentences(service: Service, call: Call) -> Response:
    """`POST /api/sentences`: events with progress, and then one with all rows."""
    fields = read(call)
    model = find(service, fields, "translator")
    other = find(service, fields, "translator", name="other") if fields.given.get("other") is not None else None
    limit = fields.whole("limit", 1, MAX_PAIRS) or MAX_PAIRS
    models = [model] if other is None else [model, other]
    if fields.given.get("pairs") is None:
        pairs = (await ask(service, call, model, "dev_lines", {"limit": limit}))["pairs"]
        if not pairs:
            raise bad_request(
                f"{model.name} has no dev lines here, since only a run keeps them; serve the run itself, or paste pairs"
            )
    else:
        pairs = fields.pairs("pairs", str, MAX_PAIRS)[:limit]
        if not pairs:
            raise bad_request("pairs is empty; give a source and a reference for each line")
        most = service.state.settings.characters
        for number, pair in enumerate(pairs, start=1):
            if not all(side.strip() for side in pair):
                raise bad_request(f"pair {number} has a blank side")
            if (longest := max(map(len, pair))) > most:
                raise bad_request(f"pair {number} has {longest:,} characters on a side; the limit is {most:,}")
    call.texts += len(pairs) * len(models)
    call.characters += sum(len(source) for source, _ in pairs) * len(models)
    return EventStream(_sentence_events(service, models, [(source, reference) for source, reference in pairs]))


async def _sentence_events(
    service: Service, models: Sequence[ServedModel], pairs: Sequence[tuple[str, str]]
) -> AsyncGenerator[str]:
    loop, done, texts = asyncio.get_running_loop(), 0, list[list[str]]()
    yield event_of({"done": 0, "all": len(models) * len(pairs)})
    try:
        for model in models:
            texts.append([])
            for begin in range(0, len(pairs), PAIRS_AT_ONCE):
                some = [source for source, _ in pairs[begin : begin + PAIRS_AT_ONCE]]
                deadline = loop.time() + service.state.settings.request_seconds
                records = await service.pool.submit(model.name, "translate", some, {"nbest": 1}, deadline=deadline)
                texts[-1] += [record["text"] for record in records]
                done += len(some)
                yield event_of({"done": done, "all": len(models) * len(pairs)})
        yield event_of(await asyncio.to_thread(score_sentences, models, pairs, texts))
    except Exception as error:
        refusal = refusal_of(error, service, "stream")
        yield event_of({"error": {"message": refusal.message}})


def score_sentences(
    models: Sequence[ServedModel], pairs: Sequence[tuple[str, str]], texts: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The rows, worst first, the scores of each model, and of two models their wins and the paired bootstrap."""
    references = [reference for _, reference in pairs]
    chrf = [[100 * value for value in line_scores(each, references, lowercase=False)] for each in texts]
    rows = []
    for at in sorted(range(len(pairs)), key=lambda at: chrf[0][at]):
        source, reference = pairs[at]
        compared = {"translation": texts[1][at], "chrf": chrf[1][at]} if len(texts) > 1 else None
        rows.append(
            {"number": at + 1, "source": source, "reference": reference, "translation": texts[0][at],
             "chrf": chrf[0][at], "other": compared}
        )  # fmt: skip
    bootstrap = Bootstrap(BOOTSTRAP_SEED)
    scores = [
        {"model": model.name, "name": f"{model.name}: {found.name}", "value": found.value,
         "interval": found.interval, "signature": found.signature}
        for model, each in zip(models, texts, strict=True)
        for found in score_named(
            ("bleu", "chrf"), each, references=references, language=model.target, bootstrap=bootstrap
        )
    ]  # fmt: skip
    record: dict[str, Any] = {"rows": rows, "scores": scores, "bootstrap": None}
    if len(texts) > 1:
        first, second = chrf
        found = paired_bootstrap(Chrf(), references, baseline=texts[0], system=texts[1], seed=BOOTSTRAP_SEED)
        record |= {
            "wins": sum(one > two for one, two in zip(first, second, strict=True)),
            "losses": sum(one < two for one, two in zip(first, second, strict=True)),
            "ties": sum(one == two for one, two in zip(first, second, strict=True)),
            "bootstrap": {
                "metric": found.name,
                models[0].name: found.baseline,
                models[1].name: found.system,
                "difference": found.difference,
                "interval": found.interval,
                "p": found.p_value,
            },
        }
    return record


def event_of(record: Mapping[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json_text(record)}\n\n"


# --- runs -------------------------------------------------------------------------------------------------------------


async def list_runs(service: Service, call: Call) -> Response:
    """`GET /api/runs`."""
    admit(call)
    return json_response({"runs": await asyncio.to_thread(_run_records, service)})


def _run_records(service: Service) -> list[dict[str, Any]]:
    of_runs = {run_of(model.path): model.name for model in service.models.models}
    return [
        {"name": name, **summarise_run(run).record(), "model": of_runs.get(run.resolve())}
        for name, run in find_runs(service.runs).items()
    ]


async def run_events(service: Service, call: Call) -> Response:
    """`GET /api/runs/NAME/events?after=ID`: what a run has reported since then, and reports while it trains."""
    admit(call)
    runs, name = await asyncio.to_thread(find_runs, service.runs), call.request.path_params["name"]
    if name not in runs:
        raise Refusal(404, "there is no run of this name; /api/runs lists them")
    after = call.query().get("after", "0")
    if not isinstance(after, str) or not re.fullmatch(r"[0-9]{1,15}", after):
        raise bad_request("after must be the id of an event")
    if service.streams >= MAX_STREAMS:
        raise Refusal(503, f"{MAX_STREAMS} streams of runs are open, which is the limit; close one", retry_after=5)
    service.streams += 1

    def close() -> None:
        service.streams -= 1

    return EventStream(_run_events(service, runs[name], int(after)), close=close)


async def _run_events(service: Service, run: Path, after: int) -> AsyncGenerator[str]:
    reader, quiet = EventReader(run / EVENTS, after), 0
    yield ": \n\n"  # the stream is open, also where nothing has been reported yet
    while not service.state.is_draining:
        points, has_more = await asyncio.to_thread(reader.read)
        if points:
            quiet = 0
            yield "".join(map(event_of, points))
        if has_more:
            continue
        if not points:
            quiet += 1
            if quiet % STATE_POLLS == 0:
                state = (await asyncio.to_thread(summarise_run, run)).state
                if state != "training":
                    yield event_of({"end": state})
                    return
                yield ": \n\n"  # a client that has left is noticed
        await asyncio.sleep(POLL_SECONDS)


# --- descriptions -----------------------------------------------------------------------------------------------------

ERROR = object_of({"error": object_of({"message": TEXT}, "message")}, "error")

_NUMBER: Schema = {"type": "number"}
_IDS = list_of({"type": "integer", "minimum": 0})
_MATRIX = list_of(list_of(_NUMBER))
_HEADER = {
    "name": "x-seqloom",
    "in": "header",
    "required": True,
    "schema": {"const": "1"},
    "description": "Shows that a page of this server sends the request.",
}
_SEARCH = object_of(
    {
        "beam": {"type": "integer", "minimum": 1, "maximum": MAX_BEAM},
        "alpha": {"type": "number", "minimum": 0, "maximum": 10},
        "stop": {"enum": list(STOPS)},
    }
)
_TERMS = {**list_of({**list_of(TEXT), "minItems": 2, "maxItems": 2}), "maxItems": MAX_TERMS}
_OFF = {**list_of({**_IDS, "minItems": 2, "maxItems": 2}), "maxItems": MAX_OFF}
_ANY: Schema = {"type": "object"}


def _description(
    summary: str, answer: Schema, given: Mapping[str, Schema] | None = None, *required: str
) -> dict[str, Any]:
    record: dict[str, Any] = {"summary": f"{summary} (workbench)", "parameters": [_HEADER]}
    if given is not None:
        record["requestBody"] = body(object_of({"model": TEXT, **given}, "model", *required))
    return {**record, "responses": responses(answer, ERROR, 400, 401, 403, 404, 415, 429, 503)}


_STREAM = {
    **responses(_ANY, ERROR, 400, 401, 403, 404, 415, 429, 503),
    "200": {"description": "Success", "content": {"text/event-stream": {"schema": TEXT}}},
}
_GIVEN = {"source": TEXT, "target": _IDS}

OPERATIONS = (
    Operation(
        "/api/models",
        ("GET",),
        WORKBENCH,
        list_models,
        _description("List the models, and what can be looked at", object_of({"models": list_of(_ANY)}, "models")),
    ),
    Operation(
        "/api/translate",
        ("POST",),
        WORKBENCH,
        translate,
        _description(
            "Translate a text sentence by sentence",
            object_of({"sentences": list_of(_ANY), "seconds": _NUMBER, "unknown_share": _NUMBER}, "sentences"),
            {"text": TEXT, "search": _SEARCH, "terms": _TERMS, "sentence": {"type": ["integer", "null"]}},
            "text",
        ),
    ),
    Operation(
        "/api/look",
        ("POST",),
        WORKBENCH,
        look,
        _description(
            "Translate one sentence and show how",
            object_of({"source": _ANY, "target": _ANY, "hypotheses": list_of(_ANY)}, "source", "target", "hypotheses"),
            {"source": TEXT, "prefix": _IDS, "off": _OFF, "search": _SEARCH, "terms": _TERMS},
            "source",
        ),
    ),
    Operation(
        "/api/attention",
        ("POST",),
        WORKBENCH,
        attention,
        _description(
            "The attention of every head, and its worth",
            object_of({"weights": list_of(list_of(_MATRIX)), "cost": {}}, "weights", "cost"),
            _GIVEN,
            *_GIVEN,
        ),
    ),
    Operation(
        "/api/reasons",
        ("POST",),
        WORKBENCH,
        reasons,
        _description(
            "Attributions of a translation to its source",
            object_of({"matrix": _MATRIX, "gap": {"type": ["number", "null"]}}, "matrix", "gap"),
            {
                **_GIVEN,
                "method": {"enum": ["gradient_x_input", "integrated_gradients", "occlusion"]},
                "steps": {"type": "integer", "minimum": 1, "maximum": 512},
            },
            *_GIVEN,
        ),
    ),
    Operation(
        "/api/reach",
        ("POST",),
        WORKBENCH,
        reach,
        _description(
            "How far back the gradient of each loss reaches",
            object_of({"maps": list_of(_ANY), "profile": list_of(_ANY), "sentence": TEXT}, "maps", "profile"),
            _GIVEN,
            "source",
        ),
    ),
    Operation(
        "/api/pieces",
        ("POST",),
        WORKBENCH,
        pieces,
        _description(
            "A text as a model reads it",
            object_of({"pieces": list_of(_ANY)}, "pieces"),
            {"text": TEXT, "side": {"enum": ["source", "target"]}},
            "text",
        ),
    ),
    Operation(
        "/api/next",
        ("POST",),
        WORKBENCH,
        next_tokens,
        _description(
            "The next tokens of a language model",
            object_of({"tokens": list_of(_ANY), "perplexity": {"type": ["number", "null"]}}, "tokens", "perplexity"),
            {"prompt": TEXT, "temperature": _NUMBER, "top_p": _NUMBER},
            "prompt",
        ),
    ),
    Operation(
        "/api/sentences",
        ("POST",),
        WORKBENCH,
        sentences,
        {
            **_description(
                "Translate and score pairs, or the dev lines of the run",
                _ANY,
                {"other": TEXT, "pairs": {"type": ["array", "null"], "maxItems": MAX_PAIRS}, "limit": _NUMBER},
            ),
            "responses": _STREAM,
        },
    ),
    Operation(
        "/api/runs",
        ("GET",),
        WORKBENCH,
        list_runs,
        _description("List the training runs", object_of({"runs": list_of(_ANY)}, "runs")),
    ),
    Operation(
        "/api/runs/{name}/events",
        ("GET",),
        WORKBENCH,
        run_events,
        {
            "summary": "What a run has reported and reports (workbench)",
            "parameters": [
                _HEADER,
                {"name": "name", "in": "path", "required": True, "schema": TEXT, "description": "The name of the run."},
                query("after", {"type": "integer", "minimum": 0}, "The id of the last event that is known."),
            ],
            "responses": _STREAM,
        },
    ),
)
