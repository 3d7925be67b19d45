"""Whatever arrives is answered in the shape of its API: with an answer or a refusal, in bounded time, without a path.

Requests come from three sources: nasty texts and files through every dialect, a list of texts that make regular
expressions slow, and what schemathesis makes of `/openapi.json`.
"""

import json
import math
import re
import threading
import time
import uuid
import xmlrpc.client
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy, one_of

import nasty
from live_server import Answer, RunningServer
from seqloom.core.errors import SeqloomError
from seqloom.serve.documents import marked_up
from seqloom.serve.refusal import Refusal
from seqloom.serve.service import FILE_FORMATS, split_lines
from seqloom.text.tags import take_out

INTERNALS = re.compile(rb'/tmp|/work|/home|site-packages|Traceback|File \\?"|line \d+, in |0x7f[0-9a-f]{6}')
"""What no answer may show: paths, tracebacks, addresses of objects."""

MAX_STALL = 10.0
"""Seconds in which a server must answer `/health` whatever it has received; generous, because machines are shared."""

ONE_TEXT = 1
MANY_TEXTS = 40

# Texts of the greatest length that is allowed, which some way of reading text may take quadratic time for.
HEAVY = tuple(
    (unit * 5_000)[:5_000]
    for unit in (
        *("<", ">", "&", "<a ", "<b>", "</b>", "<!--", "<![CDATA[", "<?", "<a b='", '<x id="0">', "&#", "&amp;"),
        *("(", "[", "{", "[X", "{{", "%(", "%", "${", "%1$", "[X1X]", "\\", '"', "'", "-", "_", "=", "@a.", "a@"),
        *("http://", "www.", "://", "a.", "1,", "1.", ". ", "! ", "A. ", "0", "aA", "\t", "\n", "\r", "\u2028", " ."),
        *("\u0301", "\u202e", "\u200d", "\u00ad", "\u3000", "\ufeff", "😀", "한", "我", "ß", "İ", "ﷺ", "\0", "\x1b["),
    )
) + tuple(f"a{space * 4_998}b" for space in (" ", "\t", "\u00a0", "\u200b", "<", "."))


# --- dialects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FuzzedDialect:
    """How some texts are sent in one request, and what the answer must look like."""

    path: str
    write: Callable[[Sequence[str]], Any]
    """The body: bytes, or what is sent as JSON."""
    count: Callable[[Any], int]
    """The number of texts in a good answer; an exception if it is malformed."""
    is_error: Callable[[Any], bool]
    texts: int = MANY_TEXTS
    """Texts per request."""
    read: Callable[[bytes], Any] = json.loads
    content_type: str = "application/json"

    def send(self, server: RunningServer, texts: Sequence[str]) -> Answer:
        return server.call(self.path, self.write(texts), headers={"Content-Type": self.content_type})

    def check(self, answer: Answer, texts: Sequence[str]) -> bool:
        """Whether the texts were answered; they may be refused, but not in another way than this API does."""
        assert answer.status == 200 or 400 <= answer.status < 500, (answer, texts)
        assert not (found := INTERNALS.search(answer.body)), (found, answer.body, texts)
        body = self.read(answer.body)
        if self.is_error(body):
            return False
        assert answer.status == 200, (answer, texts)
        assert self.count(body) == len(texts), (answer, texts)
        return True


def count_texts(values: Sequence[Any]) -> int:
    assert all(isinstance(value, str) for value in values)
    return len(values)


def libretranslate(format_name: str) -> FuzzedDialect:
    return FuzzedDialect(
        "/translate",
        lambda texts: {"q": list(texts), "source": "en", "target": "de", "format": format_name},
        lambda body: count_texts(body["translatedText"]),
        lambda body: body.keys() == {"error"} and isinstance(body["error"], str),
    )


def deepl(markup: str | None) -> FuzzedDialect:
    given = {} if markup is None else {"tag_handling": markup}

    def count(body: Any) -> int:
        assert all(isinstance(each["billed_characters"], int) for each in body["translations"])
        return count_texts([each["text"] for each in body["translations"]])

    return FuzzedDialect(
        "/v2/translate",
        lambda texts: {"text": list(texts), "source_lang": "EN", "target_lang": "DE", **given},
        count,
        lambda body: set(body) <= {"message", "detail"} and isinstance(body["message"], str),
    )


def openai(path: str, write: Callable[[Sequence[str]], Any], count: Callable[[Any], int], texts: int) -> FuzzedDialect:
    def is_error(body: Any) -> bool:
        return body.keys() == {"error"} and body["error"].keys() == {"message", "type", "param", "code"}

    return FuzzedDialect(path, write, count, is_error, texts)


def count_completions(body: Any) -> int:
    assert [each["index"] for each in body["choices"]] == list(range(len(body["choices"])))
    assert {each["finish_reason"] for each in body["choices"]} <= {"stop", "length"}
    return count_texts([each["text"] for each in body["choices"]])


def count_embeddings(body: Any) -> int:
    (width,) = {len(each["embedding"]) for each in body["data"]}
    assert width == 8
    return len(body["data"])


def count_ranks(body: Any) -> int:
    (rank,) = body
    assert all(each.keys() == {"src", "tgt", "n_best", "pred_score"} for each in rank)
    return count_texts([each["tgt"] for each in rank])


def count_languages(body: Any) -> int:
    assert all(0 <= each["confidence"] <= 100 and each["language"] in ("en", "de") for each in body)
    return ONE_TEXT


def moses_call(texts: Sequence[str]) -> bytes:
    return xmlrpc.client.dumps(({"text": texts[0]},), "translate").encode("utf-8", "surrogatepass")


def moses_answer(body: bytes) -> Any:
    try:
        return xmlrpc.client.loads(body.decode())[0]
    except xmlrpc.client.Fault as fault:
        return fault


DIALECTS = {
    "libretranslate": libretranslate("text"),
    "libretranslate html": libretranslate("html"),
    "detect": FuzzedDialect(
        "/detect",
        lambda texts: {"q": texts[0]},
        count_languages,
        lambda body: isinstance(body, dict) and body.keys() == {"error"},
        ONE_TEXT,
    ),
    "apertium": FuzzedDialect(
        "/translate",
        lambda texts: urlencode({"langpair": "en|de", "q": texts[0]}, errors="surrogatepass").encode(),
        lambda body: count_texts([body["responseData"]["translatedText"]]),
        lambda body: body.keys() == {"status", "code", "message", "explanation"},
        ONE_TEXT,
        content_type="application/x-www-form-urlencoded",
    ),
    "deepl": deepl(None),
    "deepl xml": deepl("xml"),
    "deepl html": deepl("html"),
    "completions": openai(
        "/v1/completions",
        lambda texts: {"model": "lm", "prompt": list(texts), "max_tokens": 2, "logprobs": 1, "echo": True},
        count_completions,
        MANY_TEXTS,
    ),
    "chat": openai(
        "/v1/chat/completions",
        lambda texts: {"model": "en-de", "messages": [{"role": "user", "content": texts[0]}]},
        lambda body: count_texts([each["message"]["content"] for each in body["choices"]]),
        ONE_TEXT,
    ),
    "embeddings": openai(
        "/v1/embeddings",
        lambda texts: {"model": "vectors", "input": list(texts), "encoding_format": "float"},
        count_embeddings,
        MANY_TEXTS,
    ),
    "opennmt": FuzzedDialect(
        "/translator/translate",
        lambda texts: [{"src": text, "id": 0} for text in texts],
        count_ranks,
        lambda body: isinstance(body, dict) and body.keys() == {"status", "error"},
    ),
    "moses": FuzzedDialect(
        "/RPC2",
        moses_call,
        lambda body: count_texts([body[0]["text"]]),
        lambda body: isinstance(body, xmlrpc.client.Fault),
        ONE_TEXT,
        moses_answer,
        "text/xml",
    ),
}


# --- texts ------------------------------------------------------------------------------------------------------------


def examples_of(strategy: SearchStrategy[Any], count: int) -> list[Any]:
    """So many values of a strategy, the same in each run."""
    found: list[Any] = []
    quiet = list(HealthCheck)

    @settings(max_examples=count, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=quiet)
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


@contextmanager
def responsive(server: RunningServer) -> Iterator[None]:
    """The server answers `/health` all the time while the block runs."""
    stalls, is_over = [0.0], threading.Event()

    def poll() -> None:
        while not is_over.wait(0.05):
            begun = time.monotonic()
            assert server.call("/health").status == 200
            stalls.append(time.monotonic() - begun)

    with ThreadPoolExecutor(1) as clients:
        polling = clients.submit(poll)
        try:
            yield
        finally:
            is_over.set()
        polling.result()
    assert max(stalls) < MAX_STALL


def answer_all(server: RunningServer, dialect: FuzzedDialect, texts: Sequence[str]) -> int:
    """Send texts in few requests; those of a request that is refused are sent again one by one. How many it took."""

    def send(some: Sequence[str]) -> int:
        is_answered = dialect.check(dialect.send(server, some), some)
        if is_answered or len(some) == 1:
            return len(some) if is_answered else 0
        return sum(map(send, ([text] for text in some)))

    groups = [texts[at : at + dialect.texts] for at in range(0, len(texts), dialect.texts)]
    with ThreadPoolExecutor(4) as clients:
        return sum(clients.map(send, groups))


def check_texts(server: RunningServer, name: str, count: int) -> None:
    dialect = DIALECTS[name]
    texts = examples_of(nasty.texts(longest=100), count)
    broken = examples_of(nasty.broken_texts(most=1), 5)
    with responsive(server):
        taken = answer_all(server, dialect, texts)
        assert all(dialect.check(dialect.send(server, [text]), [text]) in (True, False) for text in broken)
    # XML-RPC cannot carry control characters, and the vectors know few words; others take all but the empty text.
    assert taken >= len(texts) * {"moses": 0.4, "embeddings": 0.05}.get(name, 0.95)
    assert dialect.check(dialect.send(server, ["a dog"]), ["a dog"])


@pytest.mark.parametrize("name", DIALECTS)
def test_nasty_texts_are_answered_or_refused_in_the_shape_of_the_api(server: RunningServer, name: str) -> None:
    check_texts(server, name, 200)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", DIALECTS)
def test_5000_nasty_texts_are_answered_or_refused_in_the_shape_of_the_api(server: RunningServer, name: str) -> None:
    check_texts(server, name, 5_000)


@pytest.mark.parametrize(
    "read",
    [
        split_lines,
        take_out,
        lambda text: marked_up(text, "html"),
        lambda text: marked_up(text, "xml"),
    ],
    ids=["lines", "tags", "html", "xml"],
)
def test_texts_are_read_in_linear_time(read: Callable[[str], Any]) -> None:
    for text in HEAVY:
        begun = time.process_time()
        with suppress(SeqloomError, Refusal):
            read(text)
        assert time.process_time() - begun < 0.5, text[:20]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", DIALECTS)
def test_heavy_texts_are_answered_or_refused_in_bounded_time(server: RunningServer, name: str) -> None:
    dialect = DIALECTS[name]
    with responsive(server):
        for text in HEAVY:
            begun = time.monotonic()
            dialect.check(dialect.send(server, [text]), [text])
            assert time.monotonic() - begun < 30, text[:20]


# --- files ------------------------------------------------------------------------------------------------------------


def multipart(fields: dict[str, str], name: str, data: bytes) -> tuple[bytes, str]:
    """A form with a file, and its content type."""
    mark = uuid.uuid4().hex
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{quote(name)}"\r\n\r\n'
    return (
        "".join(parts) + head
    ).encode() + data + f"\r\n--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"


def test_nasty_files_are_translated_or_refused(server: RunningServer) -> None:
    files = examples_of(nasty.files(longest=60), 12)
    texts = [text.encode() for text in examples_of(nasty.texts(longest=100), 12)]

    def send(file: tuple[str, bytes]) -> Answer:
        body, kind = multipart({"source": "en", "target": "de"}, *file)
        return server.call("/translate_file", body, headers={"Content-Type": kind})

    names = [f"nasty.{ending.lstrip('.')}" for ending in (*FILE_FORMATS, ".exe")]
    with responsive(server), ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(send, [(name, data) for name in names for data in (*files, *texts)]))
    for answer in answers:
        assert answer.status in (200, 400), answer
        assert not INTERNALS.search(answer.body), answer
        assert answer.json.keys() in ({"error"}, {"translatedFileUrl"})
    assert any(answer.status == 200 for answer in answers)
    assert any(answer.status == 400 for answer in answers)


# --- the description of the API ---------------------------------------------------------------------------------------


KNOWN = {
    "source": ["en", "auto"],
    "target": ["de"],
    "source_lang": ["EN"],
    "target_lang": ["DE"],
    "langpair": ["en|de"],
    "model": ["lm", "vectors", "en-de"],
    "id": [0, "en-de"],
}
"""Values of parameters that this server knows."""


def with_known_values(value: Any) -> Any:
    """A description whose parameters often have values that the server knows: few strings are names of a language."""

    def schema(name: str, given: Any) -> Any:
        return {"anyOf": [{"enum": KNOWN[name]}, given]} if name in KNOWN else with_known_values(given)

    if isinstance(value, list):
        return [with_known_values(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: with_known_values(part) for name, part in value.items()}
    if isinstance(value.get("properties"), dict):
        found["properties"] = {name: schema(name, part) for name, part in value["properties"].items()}
    if "in" in value and "schema" in value:
        found["schema"] = schema(value["name"], value["schema"])
    return found


def check_description(server: RunningServer, examples: int) -> None:
    """Send about so many requests that schemathesis makes of the description, valid ones and others."""
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis import checks

    description = server.call("/openapi.json").json
    for path in description["paths"].values():
        for operation in path.values():
            for part in ("parameters", "requestBody"):
                if part in operation:
                    operation[part] = with_known_values(operation[part])
    schema = schemathesis.openapi.from_dict(description)
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 30
    is_varied = [bool(each.body or each.query or each.path_parameters) for each in operations]
    statuses: Counter[int] = Counter()
    for operation, many in zip(operations, is_varied, strict=True):
        kinds = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]
        count = math.ceil(examples / sum(is_varied)) if many else 1
        for case in examples_of(one_of(kinds), count):
            response = case.call(base_url=server.address, timeout=60)
            case.validate_response(
                response,
                checks=[
                    checks.not_a_server_error,
                    checks.status_code_conformance,
                    checks.content_type_conformance,
                    checks.response_schema_conformance,
                ],
            )
            assert not INTERNALS.search(response.content), response.content
            statuses[response.status_code] += 1
    assert sum(statuses.values()) >= examples
    assert statuses[200] > examples / 4
    assert statuses[400] > examples / 10


@pytest.mark.parity
def test_what_the_description_of_the_api_allows_and_forbids_is_answered(server: RunningServer) -> None:
    check_description(server, 200)


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_2000_requests_by_the_description_of_the_api_are_answered(server: RunningServer) -> None:
    check_description(server, 2_000)
