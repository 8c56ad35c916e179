"""Content encodings: gzip, deflate and zstd, cut off as soon as the output passes the limit."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

from promptpath.collector.otlp.errors import Malformed, TooLarge, Unsupported


def zstd_module() -> ModuleType | None:
    """The standard library's zstd, or its backport; None where there is neither: zstd is optional in the protocol."""
    try:
        return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        return None


_ZSTD: Final = zstd_module()
_GZIP_WINDOW: Final = 31
_ZLIB_WINDOW: Final = 15
_RAW_WINDOW: Final = -15


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decompress(data: bytes, encoding: str, *, max_bytes: int) -> bytes:
    """Undoes a `Content-Encoding`. Several members or frames one after the other are one body.

    Never produces more than `max_bytes` + 1 bytes, whatever the input promises.

    Raises:
        Unsupported: an encoding that is not read here.
        TooLarge: the output passes `max_bytes`.
        Malformed: damaged or truncated input.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        if len(data) > max_bytes:
            raise TooLarge(f"the body has {len(data)} bytes, the limit is {max_bytes}")
        return data
    factory = _factory(name, data)
    out: list[bytes] = []
    total = 0
    rest = data
    while rest or not out:
        decompressor = factory()
        piece, rest = _member(decompressor, rest, max_bytes + 1 - total, name)
        out.append(piece)
        total += len(piece)
        if total > max_bytes:
            raise TooLarge(
                f"the body has more than {max_bytes} bytes once decompressed ({name}); the limit is {max_bytes}"
            )
    return out[0] if len(out) == 1 else b"".join(out)


def supported() -> tuple[str, ...]:
    """Names of the encodings that are read here."""
    return ("gzip", "deflate", "zstd") if _ZSTD is not None else ("gzip", "deflate")


def _member(decompressor: _Decompressor, data: bytes, limit: int, name: str) -> tuple[bytes, bytes]:
    """One member's output, at most `limit` bytes of it, and the input that follows the member."""
    try:
        piece = decompressor.decompress(data, limit)
    except Exception as error:  # zlib.error or zstd's own: both carry only a message
        raise Malformed(f"the body is not valid {name}: {error}") from None
    if not decompressor.eof and len(piece) < limit:
        raise Malformed(f"the body is not valid {name}: it ends before the stream does")
    return piece, decompressor.unused_data


def _factory(name: str, data: bytes) -> Callable[[], Any]:
    if name in ("gzip", "x-gzip"):
        return lambda: zlib.decompressobj(_GZIP_WINDOW)
    if name == "deflate":
        # RFC 9110 means the zlib format by "deflate"; some clients send the raw stream all the same.
        window = _ZLIB_WINDOW if _has_zlib_header(data) else _RAW_WINDOW
        return lambda: zlib.decompressobj(window)
    if name == "zstd" and _ZSTD is not None:
        decompressor: Callable[[], Any] = _ZSTD.ZstdDecompressor
        return decompressor
    raise Unsupported(f"content encoding {name!r} is not read here; send one of identity, {', '.join(supported())}")


def _has_zlib_header(data: bytes) -> bool:
    return len(data) >= 2 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
