"""Content encodings, and bombs in them."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.otlp import Malformed, TooLarge, Unsupported, decompress
from promptpath.collector.otlp.encoding import zstd_module

ZSTD = zstd_module()
assert ZSTD is not None, "the tests need zstd"
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": ZSTD.compress,
    "identity": bytes,
    "": bytes,
}
LIMIT = 1 << 20


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize("encoding", COMPRESSORS)
@given(data=st.binary(max_size=2000))
def test_round_trip(encoding: str, data: bytes) -> None:
    assert decompress(COMPRESSORS[encoding](data), encoding, max_bytes=LIMIT) == data


def test_deflate_without_its_header_is_read_too() -> None:
    assert decompress(_raw_deflate(b"hello" * 100), "deflate", max_bytes=LIMIT) == b"hello" * 100


def test_names_are_case_insensitive() -> None:
    assert decompress(gzip.compress(b"x"), " GZIP", max_bytes=LIMIT) == b"x"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_are_one_body(encoding: str) -> None:
    compress = COMPRESSORS[encoding]
    assert decompress(compress(b"one") + compress(b"") + compress(b"two"), encoding, max_bytes=LIMIT) == b"onetwo"


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_the_limit_is_inclusive(encoding: str) -> None:
    exact = bytes(LIMIT)
    assert len(decompress(COMPRESSORS[encoding](exact), encoding, max_bytes=LIMIT)) == LIMIT
    with pytest.raises(TooLarge, match=str(LIMIT)):
        decompress(COMPRESSORS[encoding](exact + b"\0"), encoding, max_bytes=LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_bomb_is_stopped_while_it_is_read(encoding: str) -> None:
    bomb = COMPRESSORS[encoding](bytes(65 << 20))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(bomb, encoding, max_bytes=LIMIT)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * LIMIT


def test_a_bomb_of_many_small_members_is_stopped() -> None:
    with pytest.raises(TooLarge):
        decompress(gzip.compress(bytes(LIMIT // 4)) * 5, "gzip", max_bytes=LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_a_truncated_stream_is_malformed(encoding: str, cut: int) -> None:
    whole = COMPRESSORS[encoding](bytes(range(256)) * 20)
    with pytest.raises(Malformed, match=f"not valid {encoding}"):
        decompress(whole[:cut], encoding, max_bytes=LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_other_bytes_are_malformed(encoding: str) -> None:
    with pytest.raises(Malformed, match=f"not valid {encoding}"):
        decompress(b"\xff\xfenothing of the kind", encoding, max_bytes=LIMIT)


def test_an_unknown_encoding_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="'br' is not read here; send one of identity, gzip, deflate, zstd"):
        decompress(b"", "br", max_bytes=LIMIT)
