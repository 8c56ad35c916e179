"""Patches go on and come off symmetrically, also when others patch the same place, and skip what is not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wrapt

from promptpath.instrumentation.wrapping import replace, skipped, unwrap_all, wrap


class Base:
    def inherited(self) -> str:
        return "inherited"


class Library(Base):
    def method(self) -> str:
        return "method"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    def static() -> str:
        return "static"

    class Inner:
        async def method(self) -> str:
            return "inner"


def louder(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return str(wrapped(*args, **kwargs)) + "!"


async def louder_async(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return str(await wrapped(*args, **kwargs)) + "!"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    unwrap_all()
    unwrap_all("other")


async def test_every_kind_of_attribute_goes_on_and_off() -> None:
    before = dict(vars(Library)), dict(vars(Library.Inner)), dict(vars(Base))
    names = ("method", "inherited", "of_class", "static")
    assert all(wrap(Library, name, louder) for name in names)
    assert wrap(Library, "Inner.method", louder_async)
    library = Library()
    assert [getattr(library, name)() for name in names] == ["method!", "inherited!", "Library!", "static!"]
    assert await Library.Inner().method() == "inner!"
    assert Base().inherited() == "inherited"
    unwrap_all()
    assert (dict(vars(Library)), dict(vars(Library.Inner)), dict(vars(Base))) == before


def test_twice_is_once() -> None:
    assert wrap(Library, "method", louder)
    assert wrap(Library, "method", louder)
    assert Library().method() == "method!"


def test_groups_come_off_apart() -> None:
    wrap(Library, "method", louder)
    wrap(Library, "static", louder, group="other")
    unwrap_all("other")
    assert (Library().method(), Library.static()) == ("method!", "static")


def test_over_a_wrapper_of_somebody_else_ours_passes_through_once_taken_off() -> None:
    original = vars(Library)["method"]
    wrap(Library, "method", louder)
    wrapt.wrap_function_wrapper(Library, "method", lambda wrapped, _, args, kwargs: f"<{wrapped(*args, **kwargs)}>")
    assert Library().method() == "<method!>"
    unwrap_all()
    assert Library().method() == "<method>"
    Library.method = original  # type: ignore[method-assign]


def test_a_plain_function_goes_on_and_off() -> None:
    before = dict(vars(Library))

    def maker(original: Any) -> Any:
        return lambda self: original(self) + "!"

    assert replace(Library, "method", maker)
    assert replace(Library, "inherited", maker)
    assert replace(Library, "method", maker)  # it is there already
    assert (Library().method(), Library().inherited(), Base().inherited()) == ("method!", "inherited!", "inherited")
    assert (Library.method.__name__, Library.method.__qualname__) == ("method", "Library.method")
    assert not replace(Library, "gone", maker)
    unwrap_all()
    assert dict(vars(Library)) == before


def test_what_is_not_there_is_skipped_and_listed() -> None:
    assert not wrap(Library, "gone", louder)
    assert not wrap(Library, "Inner.gone", louder)
    assert not wrap(str, "upper", louder)  # a type that cannot be changed
    here = f"{Library.__module__}.Library"
    assert {f"{here}:gone", f"{here}:Inner.gone", "builtins.str:upper"} <= set(skipped())
    assert "a".upper() == "A"


def test_a_module_that_is_imported_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pp_later.py").write_text("def hello():\n    return 'hello'\n")
    (tmp_path / "pp_never.py").write_text("def hello():\n    return 'hello'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert wrap("pp_later", "hello", louder)
    assert wrap("pp_never", "hello", louder)
    assert "pp_later" not in sys.modules
    import pp_later  # type: ignore[import-not-found]

    assert pp_later.hello() == "hello!"
    unwrap_all()
    import pp_never  # type: ignore[import-not-found]

    assert (pp_later.hello(), pp_never.hello()) == ("hello", "hello")


def test_errors_of_the_host_pass_untouched() -> None:
    error = ValueError("the host's")

    class Failing:
        def method(self) -> None:
            raise error

    wrap(Failing, "method", louder)
    with pytest.raises(ValueError, match="the host's") as caught:
        Failing().method()
    assert caught.value is error
