"""Server-sent events, from bytes."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openai_semcache.sse import Event, Parser, frame


def parse(data: bytes, cuts: list[int] | None = None) -> list[Event]:
    parser = Parser()
    events: list[Event] = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for start, end in itertools.pairwise(places):
        events += parser.feed(data[start:end])
    return events


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [Event("", "a")]),
        (b"data: a\r\n\r\ndata:b\r\n\r\n", [Event("", "a"), Event("", "b")]),
        (b"data: a\r\rdata: b\r\r", [Event("", "a"), Event("", "b")]),
        (b": ping\n\ndata: a\n\n", [Event("", "a")]),
        (b"event: x\ndata: a\ndata: b\nid: 1\nretry: 5\n\ndata: c\n\n", [Event("x", "a\nb"), Event("", "c")]),
        (b"event: x\n\ndata: a\n\n", [Event("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("", "a")]),
        (b"data\n\n", [Event("", "")]),
        (b"data:  a\n\n", [Event("", " a")]),
        ("data: \u2028\u0085é\n\n".encode(), [Event("", "\u2028\u0085é")]),
        (b"data: a\n", []),
    ],
)
def test_events_are_read_as_the_standard_says(data: bytes, events: list[Event]) -> None:
    assert parse(data) == events
    assert parse(data, list(range(len(data)))) == events


def test_an_event_without_its_blank_line_is_given_at_the_end() -> None:
    parser = Parser()

    assert parser.feed(b"data: [DO") == []
    assert parser.feed(b"NE]") == []
    assert parser.close() == Event("", "[DONE]")
    assert parser.close() is None


texts = st.lists(
    st.sampled_from(["a", "é", "🙂", "\n", "\r\n", "\r", "data: x", "\0", "\u2028", '"', "\\", "\ud83d"]),
    max_size=8,
).map("".join)


@given(
    st.lists(texts, max_size=4),
    st.lists(st.integers(0, 10_000), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_what_is_framed_is_read_back_wherever_the_bytes_are_cut(
    values: list[str], cuts: list[int], end: bytes
) -> None:
    data = b"".join(frame({"t": value}, "kind") for value in values).replace(b"\n", end)
    events = parse(data, cuts)

    assert [json.loads(event.data)["t"] for event in events] == values
    assert {event.event for event in events} <= {"kind"}
