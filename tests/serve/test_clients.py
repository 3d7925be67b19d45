"""Client libraries that others wrote, against a real server: each call, and an error of each."""

import subprocess
import sys
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_server import RunningServer, TinyModels, running_server
from seqloom import Translator

# The tiny models do not know where to stop.
pytestmark = pytest.mark.filterwarnings("ignore:.*maximum output length")

TEXT = "the old man reads a book."
GERMAN = "der alte Mann liest ein Buch"


@pytest.fixture(scope="module")
def expected(tiny_models: TinyModels) -> str:
    """The translation of the text by the library, without a server."""
    return Translator.load(tiny_models.english_german).translate([TEXT])[0]


@pytest.fixture(scope="module")
def keyed(
    tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningServer, str, str]]:
    """A server that needs a key, and two keys."""
    folder = tmp_path_factory.mktemp("keyed")
    keys = []
    for name in ("first", "second"):
        command = [sys.executable, "-m", "seqloom", "keys", "add", name, "--file", str(folder / "keys")]
        keys.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    words = [f"en-de={tiny_models.english_german}", "--keys", str(folder / "keys")]
    with running_server(words, folder) as server:
        yield server, keys[0], keys[1]


# --- libretranslatepy -------------------------------------------------------------------------------------------------


@pytest.mark.parity
def test_libretranslatepy_makes_each_of_its_calls(server: RunningServer, expected: str) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.address)
    assert client.translate(TEXT, "en", "de") == expected
    assert client.translate(TEXT, "auto", "de") == expected
    assert client.detect(GERMAN)[0]["language"] == "de"
    assert {each["code"]: each["targets"] for each in client.languages()} == {"en": ["de"], "de": ["en"]}
    with pytest.raises(urllib.error.HTTPError) as caught:
        client.translate(TEXT, "en", "fr")
    assert caught.value.code == 400


@pytest.mark.parity
def test_libretranslatepy_sends_its_key(keyed: tuple[RunningServer, str, str], expected: str) -> None:
    server, key, _ = keyed
    library = pytest.importorskip("libretranslatepy")
    assert library.LibreTranslateAPI(server.address, key).translate(TEXT, "en", "de") == expected
    assert library.LibreTranslateAPI(server.address, key).languages()
    for wrong, status in ((None, 400), ("wrong", 403)):
        client = library.LibreTranslateAPI(server.address, wrong)
        for call in (lambda: client.translate(TEXT, "en", "de"), lambda: client.detect(TEXT)):  # noqa: B023
            with pytest.raises(urllib.error.HTTPError) as caught:
                call()
            assert caught.value.code == status


# --- deep-translator --------------------------------------------------------------------------------------------------


@pytest.mark.parity
def test_deep_translator_sends_all_in_the_query(server: RunningServer, expected: str, tmp_path: Path) -> None:
    library = pytest.importorskip("deep_translator")
    client = library.LibreTranslator(source="en", target="de", api_key="any", custom_url=f"{server.address}/")
    assert client.translate(TEXT) == expected
    assert client.translate_batch([TEXT, TEXT]) == [expected, expected]
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    assert client.translate_file(str(tmp_path / "text.txt")) == expected
    unserved = library.LibreTranslator(source="en", target="fr", api_key="any", custom_url=f"{server.address}/")
    with pytest.raises(library.exceptions.ServerException):
        unserved.translate(TEXT)


@pytest.mark.parity
def test_deep_translator_knows_a_wrong_key(keyed: tuple[RunningServer, str, str], expected: str) -> None:
    server, key, _ = keyed
    library = pytest.importorskip("deep_translator")
    address = f"{server.address}/"
    assert library.LibreTranslator("en", "de", api_key=key, custom_url=address).translate(TEXT) == expected
    with pytest.raises(library.exceptions.AuthorizationException):
        library.LibreTranslator("en", "de", api_key="wrong", custom_url=address).translate(TEXT)


# --- requests, for files ----------------------------------------------------------------------------------------------


@pytest.mark.parity
def test_a_translated_file_is_for_its_key_only(keyed: tuple[RunningServer, str, str], expected: str) -> None:
    server, key, other = keyed
    requests = pytest.importorskip("requests")
    form = {"source": "en", "target": "de", "api_key": key}
    made = requests.post(
        f"{server.address}/translate_file", data=form, files={"file": ("book.txt", f"{TEXT}\n".encode())}
    )
    address = made.json()["translatedFileUrl"]
    assert requests.get(address, headers={"Authorization": f"Bearer {key}"}).text == f"{expected}\n"
    assert requests.get(address, params={"api_key": key}).text == f"{expected}\n"
    assert requests.get(address, params={"api_key": other}).status_code == 404
    assert requests.get(address, params={"api_key": "wrong"}).status_code == 403
    assert requests.get(address).status_code == 400
    # Behind a proxy that is not trusted, the address is that of the server.
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    made = requests.post(
        f"{server.address}/translate_file", data=form, files={"file": ("book.txt", b"a dog")}, headers=forwarded
    )
    assert made.json()["translatedFileUrl"].startswith(f"{server.address}/")


# --- xmlrpc.client, of the standard library ---------------------------------------------------------------------------


def test_xmlrpc_translates_and_lists_methods(server: RunningServer, expected: str) -> None:
    with xmlrpc.client.ServerProxy(f"{server.address}/RPC2") as client:
        # OmegaT asks for the methods before it accepts an address.
        assert "translate" in client.system.listMethods()  # type: ignore[operator, union-attr]
        assert client.translate({"text": TEXT}) == {"text": expected}
        question = {"text": TEXT, "align": "true", "report-all-factors": "true", "nbest": 3, "topt": True}
        assert client.translate(question) == {"text": expected}
        assert client.translate({"text": TEXT, "source-lang": "eng", "target-lang": "de_AT"}) == {"text": expected}
        back = server.call("/translate", {"q": GERMAN, "source": "de", "target": "en"}).json["translatedText"]
        for languages in ({"source-lang": "de"}, {"target-lang": "en"}):
            assert client.translate({"text": GERMAN, **languages}) == {"text": back}
        odd = 'a < b & "c" > d\n\u2028 {0} 😀'
        plain = server.call("/translate", {"q": odd, "source": "en", "target": "de"}).json["translatedText"]
        assert client.translate({"text": odd}) == {"text": plain}
        assert client.translate({"text": ""}) == {"text": ""}


def test_xmlrpc_raises_faults(server: RunningServer) -> None:
    with xmlrpc.client.ServerProxy(f"{server.address}/RPC2") as client:
        for method, question, code in (
            ("update", {"text": TEXT}, 404),
            ("translate", {}, 400),
            ("translate", TEXT, 400),
            ("translate", {"text": 7}, 400),
            ("translate", {"text": "x" * 5001}, 400),
            ("translate", {"text": TEXT, "target-lang": "fr"}, 400),
            ("translate", {"text": TEXT, "source-lang": "en", "target-lang": "fr"}, 400),
        ):
            with pytest.raises(xmlrpc.client.Fault) as caught:
                getattr(client, method)(question)
            assert caught.value.faultCode == code
        with pytest.raises(xmlrpc.client.ProtocolError, match="413"):  # not an error of the call, so not 200
            client.translate({"text": "x" * (4 << 20)})


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMBS = {
    "entities": f'<!DOCTYPE m [<!ENTITY l0 "lol">{LAUGHS}]><methodCall><methodName>&l9;</methodName></methodCall>',
    "external": '<!DOCTYPE m [<!ENTITY f SYSTEM "file:///etc/passwd">]><methodCall><methodName>&f;</methodName></methodCall>',
    "remote": '<!DOCTYPE m SYSTEM "http://127.0.0.1:9/x.dtd"><methodCall><methodName>a</methodName></methodCall>',
    "deep": "<methodCall>" + "<value>" * 50_000,
    "wide": "<methodCall>" + "<value/>" * 50_000 + "</methodCall>",
    "long": f"<methodCall><methodName>{'&lt;' * 200_000}</methodName></methodCall>",
    "open": "<methodCall><methodName>translate",
    "empty": "",
    "encoding": '<?xml version="1.0" encoding="no-such"?><methodCall/>',
    "json": '{"text": "a"}',
    "other": "<methodCall><params/></methodCall>",
}


@pytest.mark.parametrize("name", BOMBS)
def test_xmlrpc_refuses_bombs(server: RunningServer, name: str) -> None:
    answer = server.call("/RPC2", BOMBS[name].encode(), headers={"Content-Type": "text/xml"}, timeout=10)
    assert answer.status == 200
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(answer.body.decode())
    assert caught.value.faultCode in (400, 404)
    assert "root:" not in str(caught.value)


@pytest.mark.parity
def test_xmlrpc_sends_its_key_in_the_address(keyed: tuple[RunningServer, str, str], expected: str) -> None:
    server, key, _ = keyed
    host = server.address.removeprefix("http://")
    for user in (key, f"user:{key}"):
        with xmlrpc.client.ServerProxy(f"http://{user}@{host}/RPC2") as client:
            assert client.translate({"text": TEXT}) == {"text": expected}
    for user in ("", "wrong@"):
        with (
            xmlrpc.client.ServerProxy(f"http://{user}{host}/RPC2") as client,
            pytest.raises(xmlrpc.client.Fault) as caught,
        ):
            client.translate({"text": TEXT})
        assert caught.value.faultCode == 401
