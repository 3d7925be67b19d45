"""How a request is refused: a status and a sentence, which each dialect writes in its own shape."""

from dataclasses import dataclass


@dataclass
class Refusal(Exception):
    """A request that is not answered. The sentence is for the client: it names limits, never paths."""

    status: int
    message: str
    retry_after: int | None = None
    """Seconds after which the same request may succeed."""
    param: str | None = None
    """The parameter that it is about, for APIs that name it."""

    def __str__(self) -> str:
        return self.message


def bad_request(message: str, *, param: str | None = None) -> Refusal:
    """A request that is wrong as it is written."""
    return Refusal(400, message, param=param)


def overloaded(retry_after: float) -> Refusal:
    """A request that cannot be answered in time."""
    seconds = max(1, round(retry_after))
    return Refusal(503, f"the server is busy and cannot answer in time; retry in {seconds} s", seconds)
