"""The API of OpenAI, version 1: language models complete prompts, word vectors and encoders embed texts,
translators chat.

A translator takes the last message of the user as its source text. Parameters that would change an answer and are not
supported are refused unless they have no effect, such as a penalty of 0.
"""

import asyncio
import base64
import struct
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from seqloom.core.declaration import Purpose
from seqloom.serve.completion import CompletionOptions
from seqloom.serve.http import Call, json_response, json_text
from seqloom.serve.models import ServedModel
from seqloom.serve.operations import EventStream, Operation, refusal_of
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service

MAX_LOGPROBS = 10
"""Most probable tokens that are listed at each place."""

MAX_STOPS = 4
MAX_STOP_CHARACTERS = 100

DEFAULT_MAX_TOKENS = 16

USES: Mapping[Purpose, str] = {
    "translator": "it is a translator: use /v1/chat/completions, or /translate",
    "language model": "it is a language model: use /v1/completions",
    "word vectors": "it has word vectors: use /v1/embeddings",
    "encoder": "it is an encoder: use /v1/embeddings",
}

NEUTRAL: Mapping[str, Mapping[str, Any]] = {
    "/v1/completions": {
        "suffix": "",
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "repetition_penalty": 1,
        "logit_bias": {},
    },
    "/v1/chat/completions": {
        "tools": [],
        "functions": [],
        "logprobs": False,
        "response_format": {"type": "text"},
        "modalities": ["text"],
    },
}
"""Parameters that are not supported, with the values that have no effect."""

_CODES = {401: "invalid_api_key", 403: "permission_denied", 429: "rate_limit_exceeded", 503: "overloaded"}


@dataclass(frozen=True)
class OpenAI:
    """Errors are `{"error": {"message", "type", "param", "code"}}`."""

    name: str = "openai"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as OpenAI writes it."""
        return json_response(error_record(refusal), refusal.status)


OPENAI = OpenAI()


def error_record(refusal: Refusal) -> dict[str, Any]:
    """The body of an error."""
    is_ours = refusal.status >= 500
    code = "model_not_found" if refusal.status == 404 and refusal.param == "model" else _CODES.get(refusal.status)
    kind = "server_error" if is_ours else "invalid_request_error"
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": code}}


# --- parameters -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameters:
    """The parameters of a request, each checked as it is read; null is the same as leaving one out."""

    values: Mapping[str, Any]

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"{name} must be a whole number", param=name)
        if not least <= value <= most:
            raise bad_request(f"{name} is {_shown(value)}; it must be from {least} to {most}", param=name)
        return value

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_request(f"{name} must be a number", param=name)
        if not least <= value <= most:
            raise bad_request(f"{name} is {_shown(value)}; it must be from {least:g} to {most:g}", param=name)
        return float(value)

    def boolean(self, name: str) -> bool:
        """True or false; false by default."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise bad_request(f"{name} must be true or false", param=name)
        return bool(value)

    def stops(self) -> tuple[str, ...]:
        """`stop`: a text or several."""
        value = self.values.get("stop")
        given = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise bad_request("stop must be a string, or a list of strings", param="stop")
        if len(given) > MAX_STOPS or any(len(each) > MAX_STOP_CHARACTERS for each in given):
            raise bad_request(
                f"stop may have {MAX_STOPS} strings of {MAX_STOP_CHARACTERS} characters each", param="stop"
            )
        return tuple(each for each in given if each)

    def inputs(self, name: str) -> list[str | list[int]]:
        """A text, several, the ids of one, or those of several."""
        value = self.values.get(name)
        if isinstance(value, str):
            return [value]
        if isinstance(value, list) and value:
            if all(isinstance(each, str) for each in value) or all(map(_is_ids, value)):
                return value
            if _is_ids(value):
                return [value]
        raise bad_request(
            f"{name} must be a string, a list of strings, a list of token ids, or a list of such lists", param=name
        )

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        options = self.values.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise bad_request("stream_options must be an object", param="stream_options")
        return bool((options or {}).get("include_usage"))

    def refuse_unsupported(self, route: str) -> None:
        """Refuse parameters that would change the answer and are not supported."""
        for name, neutral in NEUTRAL[route].items():
            value = self.values.get(name)
            if value is not None and value != neutral:
                raise bad_request(f"{name} is not supported; leave it out", param=name)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)


def _shown(value: Any) -> str:
    return str(value)[:40]


def _authorise(call: Call) -> None:
    call.authorise(call.bearer(), invalid=401)


async def _begin(call: Call) -> Parameters:
    """Check the key of a request and read its parameters."""
    _authorise(call)
    return Parameters(await call.fields())


def _model(service: Service, name: Any, *purposes: Purpose) -> ServedModel:
    """The model of a name, which must be of one of these purposes, if any are given."""
    if not isinstance(name, str):
        raise bad_request("the parameter model is missing; /v1/models lists the models", param="model")
    model = service.models.by_name.get(name)
    if model is None:
        raise Refusal(404, f"there is no model {name[:64]!r}; /v1/models lists the models", param="model")
    if purposes and model.purpose not in purposes:
        raise bad_request(f"the model {name!r} cannot be used here; {USES[model.purpose]}", param="model")
    return model


# --- models -----------------------------------------------------------------------------------------------------------


async def list_models(service: Service, call: Call) -> Response:
    """`GET /v1/models`."""
    _authorise(call)
    return json_response({"object": "list", "data": [_record(service, each) for each in service.models.models]})


async def show_model(service: Service, call: Call) -> Response:
    """`GET /v1/models/{model}`."""
    _authorise(call)
    return json_response(_record(service, _model(service, call.request.path_params["model"])))


def _record(service: Service, model: ServedModel) -> dict[str, Any]:
    record = {"id": model.name, "object": "model", "created": model.created, "owned_by": service.state.settings.name}
    languages = {"source": model.source, "target": model.target}
    return {**record, "purpose": model.purpose, **{name: code for name, code in languages.items() if code}}


# --- completions ------------------------------------------------------------------------------------------------------


async def complete(service: Service, call: Call) -> Response:
    """`POST /v1/completions`."""
    given = await _begin(call)
    model = _model(service, given.values.get("model"), "language model")
    given.refuse_unsupported("/v1/completions")
    options, has_usage = _options(service, given), given.includes_usage
    seed = given.integer("seed", 0, least=-(1 << 63), most=(1 << 63) - 1)
    chosen = None if given.values.get("seed") is None else seed
    prompts = given.inputs("prompt") if given.values.get("prompt") is not None else [""]
    if options.stream:
        return await _stream(service, call, model, prompts, options, seed=chosen, has_usage=has_usage)
    results = await service.complete(call, model.name, prompts, options, seed=chosen)
    choices = [choice for result in results for choice in result["choices"]]
    numbered = [{"index": index, **choice} for index, choice in enumerate(choices)]
    frame = _frame("cmpl", "text_completion", model)
    return json_response({**frame, "choices": numbered, "usage": _usage(results)})


def _options(service: Service, given: Parameters) -> CompletionOptions:
    limits, is_streamed = service.state.settings, given.boolean("stream")
    n = given.integer("n", 1, least=1, most=limits.completions)
    best_of = given.integer("best_of", n, least=n, most=limits.completions)
    if is_streamed and best_of > n:
        raise bad_request("best_of cannot be combined with stream, since it chooses among whole texts", param="best_of")
    top_p = given.number("top_p", 1.0, least=0, most=1)
    temperature = given.number("temperature", 1.0, least=0, most=100)
    logprobs = given.integer("logprobs", -1, least=0, most=MAX_LOGPROBS)
    default = min(DEFAULT_MAX_TOKENS, limits.output_tokens)
    return CompletionOptions(
        max_tokens=given.integer("max_tokens", default, least=0, most=limits.output_tokens),
        n=n,
        best_of=best_of,
        temperature=temperature if top_p else 0.0,  # no other token than the best has a share of 0
        top_p=top_p or 1.0,
        top_k=given.integer("top_k", 0, least=0, most=1 << 30),
        min_p=given.number("min_p", 0.0, least=0, most=1),
        past_line_ends=given.boolean("ignore_eos"),
        stop=given.stops(),
        logprobs=None if logprobs < 0 else logprobs,
        echo=given.boolean("echo"),
        stream=is_streamed,
    )


async def _stream(
    service: Service,
    call: Call,
    model: ServedModel,
    prompts: Sequence[str | list[int]],
    options: CompletionOptions,
    *,
    seed: int | None,
    has_usage: bool,
) -> EventStream:
    """One event for each part that a worker emits. What fails before the first one is an ordinary error."""
    parts: asyncio.Queue[tuple[int, dict[str, Any]] | None] = asyncio.Queue()

    def add(place: int, part: dict[str, Any]) -> None:
        parts.put_nowait((place, part))

    def finish(done: "asyncio.Task[list[dict[str, Any]]]") -> None:
        if not done.cancelled():
            done.exception()  # seen here, for a client that has left does not wait for it
        parts.put_nowait(None)

    work = service.complete(call, model.name, prompts, options, seed=seed, on_part=add)
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(finish)
    try:
        first = await parts.get()
        if first is None:
            task.result()
    except BaseException:
        task.cancel()
        raise
    frame = _frame("cmpl", "text_completion", model) | ({"usage": None} if has_usage else {})

    async def events() -> AsyncGenerator[str]:
        part = first
        while part is not None:
            text = ""
            while part is not None:
                place, found = part
                text += _event({**frame, "choices": [{**found, "index": place * options.n + found["index"]}]})
                if parts.empty():
                    break
                part = parts.get_nowait()
            yield text  # those together that came together
            part = part and await parts.get()
        try:
            results = task.result()
        except Exception as error:
            yield _event(error_record(refusal_of(error, service, uuid.uuid4().hex)))
            return
        if has_usage:
            yield _event({**frame, "choices": [], "usage": _usage(results)})
        yield "data: [DONE]\n\n"

    return EventStream(events(), close=task.cancel)


def _frame(prefix: str, kind: str, model: ServedModel) -> dict[str, Any]:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model.name}


def _usage(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    read, written = (sum(result[name] for result in results) for name in ("prompt_tokens", "completion_tokens"))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _event(record: Mapping[str, Any]) -> str:
    return f"data: {json_text(record)}\n\n"


# --- embeddings -------------------------------------------------------------------------------------------------------


async def embed(service: Service, call: Call) -> Response:
    """`POST /v1/embeddings`."""
    given = await _begin(call)
    model = _model(service, given.values.get("model"), "word vectors", "encoder")
    encoding = given.values.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise bad_request("encoding_format must be float or base64", param="encoding_format")
    dimensions = given.integer("dimensions", 0, least=1, most=1 << 30)
    results = await service.embed(call, model.name, given.inputs("input"))
    data = []
    for index, result in enumerate(results):
        vector = result["vector"]
        values = base64.b64decode(vector)
        width = len(values) // 4
        if dimensions not in (0, width):
            raise bad_request(f"dimensions is {dimensions}; the vectors of this model have {width}", param="dimensions")
        embedding = vector if encoding == "base64" else list(struct.unpack(f"<{width}f", values))
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    tokens = sum(result["tokens"] for result in results)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": model.name, "usage": usage})


# --- chat -------------------------------------------------------------------------------------------------------------


async def chat(service: Service, call: Call) -> Response:
    """`POST /v1/chat/completions`: translate the last message of the user."""
    given = await _begin(call)
    model = _model(service, given.values.get("model"), "translator")
    given.refuse_unsupported("/v1/chat/completions")
    n = given.integer("n", 1, least=1, most=service.state.settings.alternatives + 1)
    is_streamed, text = given.boolean("stream"), last_message(given.values.get("messages"))
    (found,) = await service.translate(
        call, [text], source=model.source, target=model.target or "", model=model.name, alternatives=n - 1
    )
    texts = [found.text, *found.alternatives][:n]
    finish = "length" if any(line.get("hit_limit") for line in found.lines) else "stop"
    if is_streamed:
        return EventStream(_chat_events(_frame("chatcmpl", "chat.completion.chunk", model), texts, finish))
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": each, "refusal": None},
            "logprobs": None,
            "finish_reason": finish,
        }
        for index, each in enumerate(texts)
    ]
    return json_response({**_frame("chatcmpl", "chat.completion", model), "choices": choices})


def last_message(messages: Any) -> str:
    """The text of the last message of the user."""
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise bad_request("messages must be a list of objects with role and content", param="messages")
    own = [each.get("content") for each in messages if each.get("role") == "user"]
    content = own[-1] if own else None
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(part["text"] if isinstance(part.get("text"), str) else "" for part in content)
    if not isinstance(content, str):
        raise bad_request(
            "the last message with role user must have a text as its content; it is what is translated",
            param="messages",
        )
    return content


async def _chat_events(frame: Mapping[str, Any], texts: Sequence[str], finish: str) -> AsyncGenerator[str]:
    """The whole of each text, then its end: a translation is known only when its search has ended."""
    for index, text in enumerate(texts):
        for delta, reason in (({"role": "assistant", "content": text}, None), ({}, finish)):
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
            yield _event({**frame, "choices": [choice]})
    yield "data: [DONE]\n\n"


# --- description ------------------------------------------------------------------------------------------------------

_STRING, _INTEGER, _BOOLEAN, _NUMBER = ({"type": name} for name in ("string", "integer", "boolean", "number"))
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_INPUTS = {
    "anyOf": [
        _STRING,
        {"type": "array", "items": _STRING, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}
_USAGE = {
    "type": "object",
    "properties": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _INTEGER),
    "required": ["prompt_tokens", "total_tokens"],
}


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _content(schema: Mapping[str, Any], *, is_streamed: bool = False) -> dict[str, Any]:
    kinds = {"application/json": {"schema": schema}}
    return {**kinds, "text/event-stream": {}} if is_streamed else kinds


_ERROR = _object(
    ["error"],
    error=_object(
        ["message", "type", "param", "code"],
        message=_STRING,
        type=_STRING,
        param={"type": ["string", "null"]},
        code={"type": ["string", "null"]},
    ),
)
_MODEL = _object(
    ["id", "object", "created", "owned_by"], id=_STRING, object=_STRING, created=_INTEGER, owned_by=_STRING
)


def _description(
    summary: str, answer: Mapping[str, Any], request: Mapping[str, Any] | None = None, *, is_streamed: bool = False
) -> dict[str, Any]:
    """What `/openapi.json` says of an operation."""
    failures = {
        "400": "The request is not valid.",
        "401": "The API key is missing or not valid.",
        "404": "There is no such model.",
        "408": "The request did not arrive in time.",
        "413": "The request is too long.",
        "429": "Too many requests.",
        "503": "The server is busy.",
        "504": "The request took too long.",
    }
    answers: dict[str, Any] = {"200": {"description": "Done.", "content": _content(answer, is_streamed=is_streamed)}}
    answers |= {status: {"description": text, "content": _content(_ERROR)} for status, text in failures.items()}
    body = {} if request is None else {"requestBody": {"required": True, "content": _content(request)}}
    return {"summary": summary, **body, "responses": answers}


_COMPLETION = _object(
    ["model"],
    model=_STRING,
    prompt=_INPUTS,
    max_tokens={"type": "integer", "minimum": 0, "default": DEFAULT_MAX_TOKENS},
    temperature={"type": "number", "minimum": 0, "maximum": 100, "default": 1},
    top_p={"type": "number", "minimum": 0, "maximum": 1, "default": 1},
    top_k={"type": "integer", "minimum": 0, "default": 0},
    min_p={"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    n={"type": "integer", "minimum": 1, "default": 1},
    best_of={"type": "integer", "minimum": 1},
    stop={"anyOf": [_STRING, {"type": "array", "items": _STRING, "maxItems": MAX_STOPS}]},
    seed=_INTEGER,
    logprobs={"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS},
    echo=_BOOLEAN,
    ignore_eos=_BOOLEAN,
    stream=_BOOLEAN,
    stream_options=_object([], include_usage=_BOOLEAN),
)
_ROLE = {"enum": ["user", "assistant", "system", "developer", "tool"]}
_CHAT = _object(
    ["model", "messages"],
    model=_STRING,
    messages={"type": "array", "items": _object(["role", "content"], role=_ROLE, content=_STRING), "minItems": 1},
    n={"type": "integer", "minimum": 1, "default": 1},
    stream=_BOOLEAN,
)
_EMBEDDING = _object(
    ["model", "input"],
    model=_STRING,
    input=_INPUTS,
    encoding_format={"enum": ["float", "base64"]},
    dimensions={"type": "integer", "minimum": 1},
)
_CHOICES = {"type": "array", "items": {"type": "object"}}
_FRAME = {"id": _STRING, "object": _STRING, "created": _INTEGER, "model": _STRING, "choices": _CHOICES}

OPERATIONS = (
    Operation(
        "/v1/models",
        ("GET",),
        OPENAI,
        list_models,
        _description(
            "List the models (OpenAI)",
            _object(["object", "data"], object=_STRING, data={"type": "array", "items": _MODEL}),
        ),
    ),
    Operation(
        "/v1/models/{model}",
        ("GET",),
        OPENAI,
        show_model,
        {
            **_description("Describe a model (OpenAI)", _MODEL),
            "parameters": [{"name": "model", "in": "path", "required": True, "schema": _STRING}],
        },
    ),
    Operation(
        "/v1/completions",
        ("POST",),
        OPENAI,
        complete,
        _description(
            "Continue texts with a language model (OpenAI)",
            _object(list(_FRAME), **_FRAME, usage=_USAGE),
            _COMPLETION,
            is_streamed=True,
        ),
    ),
    Operation(
        "/v1/embeddings",
        ("POST",),
        OPENAI,
        embed,
        _description(
            "Vectors of texts (OpenAI)",
            _object(
                ["object", "data", "model", "usage"],
                object=_STRING,
                data={"type": "array", "items": {"type": "object"}},
                model=_STRING,
                usage=_USAGE,
            ),
            _EMBEDDING,
        ),
    ),
    Operation(
        "/v1/chat/completions",
        ("POST",),
        OPENAI,
        chat,
        _description(
            "Translate the last message of the user (OpenAI)",
            _object(list(_FRAME), **_FRAME),
            _CHAT,
            is_streamed=True,
        ),
    ),
)
