"""Ids to text in pieces: nothing lost, nothing cut, stop strings across pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptpath.cli.demo.text import IncrementalText, StopAt

# A token a byte: every character beyond ASCII is cut somewhere.
BYTES = {token: bytes([token]) for token in range(256)}


def decode(ids: list[int]) -> str:
    """As OpenVINO's tokenizer does it: what is no whole character is left out."""
    return bytes(ids).decode("utf-8", "ignore")


def test_a_character_is_never_cut() -> None:
    text = IncrementalText(decode, BYTES)
    fox = "🦊".encode()
    assert [text.push([byte]) for byte in b"a" + fox + b"b"] == ["a", "", "", "", "🦊", "b"]
    assert text.finish() == ""


def test_what_is_incomplete_at_the_end_is_given_out_as_the_tokenizer_sees_it() -> None:
    text = IncrementalText(decode, BYTES)
    assert text.push(list(b"a\xf0\x9f")) == ""
    assert text.finish() == "a"


def test_special_tokens_stand_for_no_bytes() -> None:
    text = IncrementalText(lambda ids: decode([i for i in ids if i < 256]), BYTES)
    assert text.push([65, 1000]) == "A"
    assert text.push([1000]) == ""


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.lists(st.integers(1, 5), min_size=1))
def test_pieces_add_up_to_the_text(whole: str, sizes: list[int]) -> None:
    ids = list(whole.encode())
    text = IncrementalText(decode, BYTES)
    pieces = []
    at = turn = 0
    while at < len(ids):
        size = sizes[turn % len(sizes)]
        pieces.append(text.push(ids[at : at + size]))
        at, turn = at + size, turn + 1
    assert "".join(pieces) + text.finish() == whole
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in whole


def test_stop_string_across_pieces() -> None:
    stop = StopAt(["STOP", "##"])
    assert [stop.push(piece) for piece in ("one S", "TO", "P two", " three")] == ["on", "e ", "", ""]
    assert stop.stopped
    assert stop.finish() == ""


def test_without_a_stop_string_nothing_is_held_back() -> None:
    stop = StopAt([])
    assert stop.push("at once") == "at once"
    assert not stop.stopped


def test_held_back_text_comes_at_the_end_if_no_stop_string_does() -> None:
    stop = StopAt(["###"])
    assert stop.push("a##") + stop.finish() == "a##"


@given(st.text(alphabet="ab#"), st.sampled_from(["#", "##", "a#b", "zz"]), st.integers(1, 4))
def test_stop_cuts_where_the_whole_text_would_be_cut(whole: str, stop_string: str, size: int) -> None:
    stop = StopAt([stop_string])
    out = "".join(stop.push(whole[at : at + size]) for at in range(0, len(whole), size)) + stop.finish()
    assert out == whole.split(stop_string)[0]
