"""Making a decorator of a managed span, for every kind of function: def, async def, and generators of both kinds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from opentelemetry import context as context_api
from opentelemetry.context import Context

from promptpath.instrumentation import recorder

_F = TypeVar("_F", bound=Callable[..., Any])


class Managed(Protocol):
    """A span that is opened and closed; `open` returns the context to work in."""

    def open(self) -> Context:
        """Start it."""

    def close(self, error: BaseException | None = None) -> None:
        """End it."""


class _Steps:
    """Runs the steps of a generator in the span's context, and its consumer outside of it.

    A generator shares its consumer's context, so a context that stayed attached over a `yield` would leak to the
    consumer. What the generator had attached itself at a `yield` is put back at its next step.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = context_api.attach(self._context)

    def __exit__(self, *_: object) -> None:
        self._context = context_api.get_current()
        recorder.detach(self._token)


def decorated(function: _F, make: Callable[[], Managed]) -> _F:
    """The function with a fresh managed span around each call.

    The span of a generator ends when it is exhausted, closed, or fails; that of a coroutine when it returns.
    """
    made: Any
    if inspect.isasyncgenfunction(function):
        made = _async_generator(function, make)
    elif inspect.iscoroutinefunction(function):
        made = _coroutine(function, make)
    elif inspect.isgeneratorfunction(function):
        made = _generator(function, make)
    else:
        made = _plain(function, make)
    return cast("_F", functools.wraps(function)(made))


def _plain(function: Callable[..., Any], make: Callable[[], Managed]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        managed = make()
        token = context_api.attach(managed.open())
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            managed.close(error)
            raise
        finally:
            recorder.detach(token)
        managed.close()
        return result

    return run


def _coroutine(function: Callable[..., Any], make: Callable[[], Managed]) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        managed = make()
        token = context_api.attach(managed.open())
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            managed.close(error)
            raise
        finally:
            recorder.detach(token)
        managed.close()
        return result

    return run


def _generator(function: Callable[..., Any], make: Callable[[], Managed]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        managed = make()
        steps = _Steps(managed.open())
        step: Callable[[], Any] = generator.__next__
        try:
            while True:
                try:
                    with steps:
                        item = step()
                except StopIteration as stop:
                    managed.close()
                    return stop.value
                try:
                    sent = yield item
                    step = functools.partial(generator.send, sent)
                except GeneratorExit:
                    with steps:
                        generator.close()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
        except BaseException as error:
            managed.close(error)
            raise

    return run


def _async_generator(function: Callable[..., Any], make: Callable[[], Managed]) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        managed = make()
        steps = _Steps(managed.open())
        step: Callable[[], Any] = generator.__anext__
        try:
            while True:
                try:
                    with steps:
                        item = await step()
                except StopAsyncIteration:
                    managed.close()
                    return
                try:
                    sent = yield item
                    step = functools.partial(generator.asend, sent)
                except GeneratorExit:
                    with steps:
                        await generator.aclose()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.athrow, error)
        except BaseException as error:
            managed.close(error)
            raise

    return run
