"""Failures of ours are counted and passed by; the host's signals of control go through."""

from __future__ import annotations

import asyncio
import logging

import pytest

from promptpath.instrumentation.safety import failures, guard, guarded


def test_a_failure_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "promptpath"):
        for _ in range(3):
            with guard("test.once"):
                raise ValueError("broken")
    assert failures()["test.once"] == 3
    assert [record.getMessage() for record in caplog.records] == [
        "promptpath: test.once failed and was passed by (ValueError: broken); further failures here are only counted"
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_control_goes_through(error: type[BaseException]) -> None:
    with pytest.raises(error), guard("test.control"):
        raise error
    assert "test.control" not in failures()


async def test_decorated_functions_return_the_default() -> None:
    @guarded("test.sync", default=7)
    def broken() -> int:
        raise ValueError

    @guarded("test.async", default=8)
    async def broken_async() -> int:
        raise ValueError

    @guarded("test.fine")
    def fine(number: int) -> int:
        return number

    assert broken() == 7
    assert await broken_async() == 8
    assert fine(9) == 9
    assert failures()["test.sync"] == failures()["test.async"] == 1


def test_a_broken_log_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    handler = Broken()
    logging.getLogger("promptpath").addHandler(handler)
    try:
        with guard("test.log"):
            raise ValueError
    finally:
        logging.getLogger("promptpath").removeHandler(handler)
    assert failures()["test.log"] == 1
