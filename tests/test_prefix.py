"""What a conversation's committed events answer, and to whom: no bus, no solver."""

from __future__ import annotations

from bus.chain import EMPTY_HEAD, next_head
from workers.prefix import Prefix, event_json

NOTE = event_json({"kind": "note", "text": "hello"})
ONE = event_json({"kind": "model", "request": "one"})
TWO = event_json({"kind": "tools", "request": "two"})
WRITE = event_json({"kind": "write", "path": "f", "digest": "d"})


def test_requests_are_answered_in_their_order_and_remarks_are_passed_over() -> None:
    """A solver may leave out what it only said; what it asks has to be what was asked."""
    prefix = Prefix([NOTE, ONE, WRITE, TWO])
    assert prefix.answer("tools", "two") is None, "the model's comes first"
    assert (prefix.at, prefix.repeated) == (0, 0), "who asked another is not answered, and has not moved"
    assert prefix.answer("model", "one") == {"kind": "model", "request": "one"}
    assert prefix.answer("write", "f\nd") is not None
    assert prefix.answer("tools", "two") is not None
    assert (prefix.is_used_up, prefix.repeated, prefix.requests, prefix.writes) == (True, 3, 2, 1)
    assert prefix.answer("model", "one") is None


def test_a_remark_is_found_only_before_the_next_request() -> None:
    """It would be told again later, where it never stood."""
    prefix = Prefix([NOTE, ONE, NOTE])
    assert prefix.find_note(NOTE)
    assert not prefix.find_note(NOTE)
    assert prefix.answer("model", "one") is not None
    assert prefix.find_note(NOTE)
    assert not prefix.pass_by(), "nothing is left"


def test_what_is_left_behind_says_whether_remarks_were_among_it_and_a_start_over_begins_at_the_first_event() -> None:
    """The next attempt repeats none of them, and a `restart` has to tell why they stand there."""
    prefix = Prefix([ONE, NOTE])
    assert prefix.answer("model", "one") is not None
    assert prefix.pass_by()
    prefix.start_over()
    assert (prefix.at, prefix.repeated, prefix.is_used_up) == (0, 0, False)


def test_what_is_added_is_the_attempts_own_and_is_chained() -> None:
    """It is not asked of the prefix again, and the next event stands behind it."""
    prefix = Prefix([])
    assert prefix.head == EMPTY_HEAD
    prefix.add([ONE, "no event at all"])
    assert prefix.head == next_head(next_head(EMPTY_HEAD, ONE), "no event at all")
    assert (prefix.length, prefix.at, prefix.is_used_up) == (2, 2, True)
    prefix.start_over()
    assert prefix.answer("model", "one") is not None
    assert not prefix.is_used_up, "what cannot be read is no remark of ours: it answers nothing that is asked"
