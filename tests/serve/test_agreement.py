"""All dialects translate a text alike, whatever it is."""

import json
import re
import xmlrpc.client
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings

import nasty
from live_server import Answer, RunningServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LEAK = re.compile(r"Traceback|site-packages|/src/seqloom|/tmp/|\.py\b")

# What XML 1.0 cannot represent. A parser turns the carriage return into a line feed.
UNWRITABLE = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text_of(answer: Answer) -> str:
    """The translation in an answer of LibreTranslate."""
    assert answer.status == 200, answer.body
    translated: str = answer.json["translatedText"]
    return translated


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=nasty.texts(longest=100))
def test_dialects_agree_on_nasty_texts(server: RunningServer, text: str) -> None:
    if not text:
        return
    languages = {"source": "en", "target": "de"}
    expected = text_of(server.call("/translate", {"q": text, **languages}))
    assert text_of(server.call("/translate", urlencode({"q": text, **languages}).encode(), headers=FORM)) == expected
    apertium = server.call("/translate", urlencode({"q": text, "langpair": "en|de"}).encode(), headers=FORM)
    assert apertium.json["responseData"]["translatedText"] == expected
    ((entry,),) = server.call("/translator/translate", [{"src": text}]).json
    assert (entry["src"], entry["tgt"]) == (text, expected)
    if not UNWRITABLE.search(text + expected):
        body = xmlrpc.client.dumps(({"text": text},), "translate").encode()
        ((moses,), _) = xmlrpc.client.loads(server.call("/RPC2", body).body.decode())
        assert moses == {"text": expected}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=nasty.broken_texts() | nasty.texts())
@pytest.mark.parametrize(
    "path", ["/translate", "/detect", "/translator/translate", "/translate?langpair=en%7Cde", "/RPC2"]
)
def test_nasty_parameters_get_an_answer_in_the_shape_of_the_dialect(
    server: RunningServer, path: str, text: str
) -> None:
    body = {"q": [text], "source": text, "target": "de", "format": "html", "api_key": text, "src": text}
    listed = [{"src": text, "id": text}] if "translator" in path else body
    answers = [server.call(path, listed), server.call(path, text.encode("utf-8", "surrogatepass"))]
    for answer in answers:
        assert answer.status in (200, 400)
        assert not LEAK.search(answer.body.decode().replace(json.dumps(text)[1:-1], ""))
        if path == "/RPC2":
            with pytest.raises(xmlrpc.client.Fault):
                xmlrpc.client.loads(answer.body.decode())
        else:
            assert answer.json


def test_a_wrong_method_is_405_in_the_shape_of_the_dialect(server: RunningServer) -> None:
    for path, method, name, allowed in (
        ("/translate", "PUT", "error", "GET, HEAD, POST"),
        ("/languages", "POST", "error", "GET, HEAD"),
        ("/listPairs", "DELETE", "explanation", "GET, HEAD, POST"),
        ("/translator/translate", "GET", "error", "POST"),
    ):
        answer = server.call(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert "POST" in answer.json[name] or method == "POST"
    moses = server.call("/RPC2")
    assert moses.status == 405
    with pytest.raises(xmlrpc.client.Fault, match="POST"):
        xmlrpc.client.loads(moses.body.decode())
