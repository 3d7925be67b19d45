"""The XML-RPC interface of the Moses server, at `/RPC2`.

    translate({"text": "a dog"})                        {"text": "ein Hund"}
    translate({"text": "ein Hund", "source-lang": "de"})
    system.listMethods()                                ["system.listMethods", "translate"]

Moses serves one pair of languages and its clients name none, so the first pair of the server is the default. The key,
where one is needed, is the user or the password of the address: `http://KEY@host:port/RPC2`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.responses import Response

from seqloom.serve.description import TEXT, Schema, body, object_of, responses
from seqloom.serve.http import Call
from seqloom.serve.models import code_of
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service
from seqloom.text.formats.xml import escape, parse_xml

XML = "text/xml"

MAX_ELEMENTS = 1_000
"""Elements of a call. Clients send a dozen."""

MAX_OTHER_CHARACTERS = 10_000
"""Characters of a call besides those of the text: names, other members, white space between elements."""

METHODS = ("system.listMethods", "translate")

_OF_THE_CALL = (400, 401, 404)
"""Statuses of errors in a call itself, which XML-RPC answers with 200; others concern the transport."""


@dataclass(frozen=True)
class Moses:
    """Errors are faults, whose code is the status that HTTP has for them."""

    name: str = "moses"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as a fault."""
        members = (
            f"{_member('faultCode', f'<int>{refusal.status}</int>')}{_member('faultString', _text(refusal.message))}"
        )
        status = 200 if refusal.status in _OF_THE_CALL else refusal.status
        return _response(f"<fault><value><struct>{members}</struct></value></fault>", status)


MOSES = Moses()


async def call_method(service: Service, call: Call) -> Response:
    """`POST /RPC2`."""
    call.authorise(call.bearer() or _basic_key(call), missing=401, invalid=401)
    method, members = read_call(call.body, most=call.state.settings.characters + MAX_OTHER_CHARACTERS)
    if method == "system.listMethods":
        names = "".join(f"<value>{_text(each)}</value>" for each in METHODS)
        return _answer(f"<array><data>{names}</data></array>")
    if method != "translate":
        raise Refusal(404, f"there is no method {method[:64]!r}; the methods are {', '.join(METHODS)}")
    if "text" not in members:
        raise bad_request("the parameter of translate must be a struct with the member text, a string")
    source, target = _pair(service, members.get("source-lang"), members.get("target-lang"))
    (found,) = await service.translate(call, [members["text"]], source=source, target=target)
    return _answer(f"<struct>{_member('text', _text(found.text))}</struct>")


def _pair(service: Service, source: str | None, target: str | None) -> tuple[str, str]:
    """The languages that a call names; for those that it does not, the first that the server has."""
    if source and target:
        return source, target
    known = [(model.source or "", model.target or "") for model in service.models.translators]
    wanted = code_of(source) if source else None, code_of(target) if target else None
    for pair in (*known, *service.models.pairs):
        if wanted[0] in (None, pair[0]) and wanted[1] in (None, pair[1]):
            return pair
    raise bad_request(f"there is no translation for the languages; there are {', '.join('-'.join(p) for p in known)}")


def _basic_key(call: Call) -> str | None:
    """The key in the user or the password of the address, which clients send as Basic."""
    try:
        user, _, password = base64.b64decode(call.bearer("Basic") or "", validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password or user or None


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class _RpcNode:
    """An element of a call."""

    name: str
    children: list["_RpcNode"] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def inner(self, *path: str) -> "_RpcNode | None":
        """The first element along a path of names."""
        node: _RpcNode | None = self
        for name in path:
            node = next((each for each in node.children if each.name == name), None) if node else None
        return node


class _CallBuilder:
    """Builds the tree of a call, up to a number of elements and characters."""

    def __init__(self, most: int) -> None:
        self.root = _RpcNode("")
        self._open, self._count, self._most, self._left = [self.root], 0, most, most

    def start(self, name: str, _attributes: dict[str, str], _line: int) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise bad_request(f"the call has more than {MAX_ELEMENTS:,} elements")
        node = _RpcNode(name)
        self._open[-1].children.append(node)
        self._open.append(node)

    def end(self, _name: str) -> None:
        self._open.pop()

    def data(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise bad_request(f"the call has more than {self._most:,} characters between its tags")
        self._open[-1].parts.append(text)


def read_call(data: bytes, *, most: int) -> tuple[str, dict[str, str]]:
    """The method of a call with at most so many characters, and the members of its first parameter that are strings.

    Declared entities, references to other files and deep nesting are refused by the reader of XML.
    """
    builder = _CallBuilder(most)
    for _ in parse_xml(Path("call"), builder, data=data):
        pass
    method = builder.root.inner("methodCall", "methodName")
    if method is None:
        raise bad_request("the body is not a call of XML-RPC: it has no methodName")
    struct = builder.root.inner("methodCall", "params", "param", "value", "struct")
    members: dict[str, str] = {}
    for member in struct.children if struct else ():
        name, value = member.inner("name"), member.inner("value")
        if name is not None and value is not None and (text := _string(value)) is not None:
            members[name.text] = text
    return method.text.strip(), members


def _string(value: _RpcNode) -> str | None:
    """A value that is a string, with or without its type; None for other types."""
    if not value.children:
        return value.text
    typed = value.inner("string")
    return typed.text if typed else None


# --- writing ----------------------------------------------------------------------------------------------------------


def _answer(value: str) -> Response:
    return _response(f"<params><param><value>{value}</value></param></params>")


def _response(content: str, status: int = 200) -> Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<methodResponse>{content}</methodResponse>\n'
    return Response(text.encode("utf-8", "replace"), status, media_type=XML)


def _member(name: str, value: str) -> str:
    return f"<member><name>{name}</name><value>{value}</value></member>"


def _text(text: str) -> str:
    return f"<string>{escape(text)}</string>"


def _element(inner: Mapping[str, Schema]) -> Schema:
    """An element with these inside."""
    return object_of(inner, *inner)


_STRUCT = _element({"struct": _element({"member": _element({"name": {"const": "text"}, "value": TEXT})})})
_CALL = {
    **_element({"methodName": {"enum": list(METHODS)}, "params": _element({"param": _element({"value": _STRUCT})})}),
    "xml": {"name": "methodCall"},
}

OPERATIONS: Sequence[Operation] = (
    Operation(
        "/RPC2",
        ("POST",),
        MOSES,
        call_method,
        {
            "summary": "Call translate by XML-RPC (Moses)",
            "requestBody": body(_CALL, XML),
            "responses": responses(TEXT, TEXT, 413, 429, 503, media_type=XML),
        },
    ),
)
