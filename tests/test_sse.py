"""Server-sent events, cut wherever a packet may end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.endpoints.sse import EventTooLarge, SseDecoder, SseEvent

STREAM = (
    b"\xef\xbb\xbfdata: one\n\n"
    b": a comment\r\n"
    b"event: named\r\ndata:two\r\ndata: lines\r\n\r\n"
    b"id: 7\rretry: 10\rdata: after a CR\r\r"
    b"\n\n\n"
    b"data\n\n"
    b"event: without data\n\n"
    b"data: \xe2\x82\xac and \xf0\x9f\x98\x80 \xe2\x80\xa8 \x0b\x0c\x1c\xc2\x85 are text\n\n"
    b"data: the last\n"
)
EVENTS = [
    SseEvent("one"),
    SseEvent("two\nlines", "named"),
    SseEvent("after a CR"),
    SseEvent(""),
    SseEvent("€ and 😀 \u2028 \x0b\x0c\x1c\x85 are text"),
    SseEvent("the last"),
]


def decoded(packets: list[bytes]) -> list[SseEvent]:
    """What a decoder makes of them, with the end."""
    decoder = SseDecoder()
    found = [event for packet in packets for event in decoder.feed(packet)]
    return found + ([last] if (last := decoder.end()) else [])


def test_a_stream_gives_the_same_events_wherever_its_packets_end() -> None:
    """At each place in turn, also between CR and LF and within a character; and each byte by itself."""
    assert decoded([STREAM]) == EVENTS
    assert decoded([STREAM[n : n + 1] for n in range(len(STREAM))]) == EVENTS
    for at in range(len(STREAM)):
        assert decoded([STREAM[:at], STREAM[at:]]) == EVENTS, at


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_a_stream_gives_the_same_events_in_any_packets(cuts: list[int]) -> None:
    """Empty ones too."""
    bounds = [0, *cuts, len(STREAM)]
    assert decoded([STREAM[a:b] for a, b in pairwise(bounds)]) == EVENTS


def test_an_event_whose_last_line_is_cut_is_none() -> None:
    """Half of a line would be half of a JSON text, or a whole one that is another."""
    assert decoded([b"data: 1\n\ndata: 23"]) == [SseEvent("1")]
    assert decoded([b"data: 1\n\ndata: 2\nda"]) == [SseEvent("1")]


def test_an_event_beyond_the_limit_is_refused_before_it_is_whole() -> None:
    """One line without end, or lines without an end of the event: the memory of a worker is not the server's."""
    for packet in (b"x" * 10, b"data: x\n"):
        decoder = SseDecoder(limit=1000)
        with pytest.raises(EventTooLarge):
            for _ in range(1000):
                assert list(decoder.feed(packet)) == []
    assert len(list(SseDecoder(limit=1000).feed(b"data: x\n\n" * 1000))) == 1000


def test_what_is_no_utf8_is_refused() -> None:
    """Replacement characters would be text that no model has said."""
    with pytest.raises(UnicodeDecodeError):
        list(SseDecoder().feed(b"data: \xff\n\n"))
