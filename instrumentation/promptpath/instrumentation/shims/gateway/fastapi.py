"""FastAPI: what a gateway checks before it passes a request on, as stages.

Each dependency (`Depends`) of an endpoint on an inference path becomes a span named after it. One that authenticates,
limits or applies a policy (told by its name, or because it is one of `fastapi.security`) has the stage `gateway` in
any process; others belong to what the process is: `gateway`, `router`, and in an inference server `parse`. Also:
Starlette's `AuthenticationMiddleware`, and slowapi's limiter. Entering the endpoint ends the server's `parse` span.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from typing import Any, ClassVar, Final

import wrapt
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import errors, state
from promptpath.instrumentation.shims.gateway import announced
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Stage

SCOPE: Final = "promptpath.fastapi"

_CHECKS: Final = re.compile(
    r"auth|api_?key|token|bearer|credential|permission|current_user|login|session|scope"
    r"|limit|quota|throttl|budget|policy|guard|audit|verify|validat|allow|deny|tenant",
    re.IGNORECASE,
)
#: Copies of dependants beyond this many are thrown away and made again: an application has some hundreds at most.
_MAX_COPIES: Final = 4096


class FastApiInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on FastAPI, Starlette's authentication and slowapi."""

    library: ClassVar[tuple[str, ...]] = ("fastapi.routing",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("fastapi >= 0.100",)

    def _instrument(self, **kwargs: Any) -> None:
        wrap("fastapi.routing", "solve_dependencies", _solve)
        wrap("fastapi.routing", "run_endpoint_function", _run_endpoint)
        wrap("starlette.middleware.authentication", "AuthenticationMiddleware.__call__", _authenticate)
        wrap("slowapi.extension", "Limiter._check_request_limit", _check_limit)
        announced.fastapi_shim(True)

    def _uninstrument(self, **kwargs: Any) -> None:
        announced.fastapi_shim(False)
        unwrap_all()
        _copies.clear()
        _wrapped.clear()


# --- dependencies -----------------------------------------------------------------------------------------------------


async def _solve(wrapped: Callable[..., Awaitable[Any]], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`solve_dependencies` of an endpoint: its dependencies are replaced by copies that are timed."""
    request = recorder.request_span()
    if request is None or "dependant" not in kwargs:
        return await wrapped(*args, **kwargs)
    dependant = kwargs["dependant"]
    with guard("fastapi.dependencies"):
        kwargs = {**kwargs, "dependant": _timed_copy(dependant)}
    solved = await wrapped(*args, **kwargs)
    with guard("fastapi.endpoint"):
        # Generators are not run through `run_endpoint_function`; they begin here.
        if inspect.isgeneratorfunction(dependant.call) or inspect.isasyncgenfunction(dependant.call):
            state.of(request).enter_handler()
    return solved


_copies: Final[dict[int, tuple[Any, tuple[int, ...], Any]]] = {}
_wrapped: Final[dict[int, tuple[Any, Any]]] = {}


def _timed_copy(dependant: Any) -> Any:
    """A copy of a dependant whose dependencies' calls are timed; the same one each time, the original untouched."""
    if not dependant.dependencies:
        return dependant
    below = tuple(map(id, dependant.dependencies))
    known = _copies.get(id(dependant))
    if known is not None and known[0] is dependant and known[1] == below:
        return known[2]
    made = copy.copy(dependant)
    made.dependencies = []
    for dependency in dependant.dependencies:
        timed = copy.copy(_timed_copy(dependency))
        if dependency.call is not None:
            timed.call = _timed_call(dependency.call)
        made.dependencies.append(timed)
    if len(_copies) >= _MAX_COPIES:
        _copies.clear()
    _copies[id(dependant)] = (dependant, below, made)
    return made


def _timed_call(call: Callable[..., Any]) -> Any:
    """A proxy of a dependency that is equal to it (FastAPI caches and overrides by equality) and timed when called."""
    known = _wrapped.get(id(call))
    if known is None or known[0] is not call:
        if len(_wrapped) >= _MAX_COPIES:
            _wrapped.clear()
        proxy = wrapt.FunctionWrapper(call, _Dependency(call))
        _wrapped[id(call)] = known = (call, proxy)
    return known[1]


class _Dependency:
    """What is done around one dependency's calls."""

    def __init__(self, call: Callable[..., Any]) -> None:
        target = inspect.unwrap(call)
        named = getattr(target, "__name__", None)
        self.name: str = named if isinstance(named, str) else type(target).__name__
        security = any(base.__module__.startswith("fastapi.security") for base in type(target).__mro__)
        self.checks = security or _CHECKS.search(self.name) is not None
        inner = target if inspect.isroutine(target) or inspect.isclass(target) else getattr(target, "__call__", None)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(inner)
        self.is_generator = inspect.isgeneratorfunction(inner)
        self.is_async_generator = inspect.isasyncgenfunction(inner)

    def __call__(self, wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.is_async:
            return self._run_async(wrapped, args, kwargs)
        if self.is_generator:
            return self._run_generator(wrapped(*args, **kwargs))
        if self.is_async_generator:
            return self._run_async_generator(wrapped(*args, **kwargs))
        span = self._begin()
        if span is None:
            return wrapped(*args, **kwargs)
        with _ended(span), recorder.use(span):
            return wrapped(*args, **kwargs)

    def _begin(self) -> LiveSpan | None:
        with guard("fastapi.dependency"):
            request = recorder.request_span()
            if request is None:
                return None
            parse = state.of(request).parse
            if self.checks:
                stage = Stage.GATEWAY
            elif request.stage == Stage.SERVER:
                stage = Stage.PARSE
            else:
                stage = Stage(request.stage or Stage.GATEWAY)
            return recorder.start(self.name, scope=SCOPE, stage=stage, parent=parse or request)
        return None

    async def _run_async(self, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        span = self._begin()
        if span is None:
            return await wrapped(*args, **kwargs)
        with _ended(span), recorder.use(span):
            return await wrapped(*args, **kwargs)

    def _run_generator(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Timed up to what it yields; what it does after the answer is not the request's waiting."""
        span = self._begin()
        if span is None:
            value = next(generator)
        else:
            with _ended(span), recorder.use(span):
                value = next(generator)
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                try:
                    value = generator.throw(error)
                except StopIteration as stop:
                    return stop.value
            else:
                try:
                    value = generator.send(sent)
                except StopIteration as stop:
                    return stop.value

    async def _run_async_generator(self, generator: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
        span = self._begin()
        if span is None:
            value = await anext(generator)
        else:
            with _ended(span), recorder.use(span):
                value = await anext(generator)
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                await generator.aclose()
                raise
            except BaseException as error:
                try:
                    value = await generator.athrow(error)
                except StopAsyncIteration:
                    return
            else:
                try:
                    value = await generator.asend(sent)
                except StopAsyncIteration:
                    return


class _ended:  # noqa: N801
    """Ends a span with a block, and says what was raised in it."""

    __slots__ = ("_span",)

    def __init__(self, span: LiveSpan) -> None:
        self._span = span

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        try:
            if error is not None and not isinstance(error, StopIteration | StopAsyncIteration):
                self._span.fail(errors.error_type(error))
            self._span.end()
        except Exception as failure:
            note_failure("fastapi.dependency.end", failure)


# --- the endpoint, and checks elsewhere -------------------------------------------------------------------------------


async def _run_endpoint(
    wrapped: Callable[..., Awaitable[Any]], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    with guard("fastapi.endpoint"):
        request = recorder.request_span()
        if request is not None:
            notes = state.of(request)
            if kwargs.get("is_coroutine", True):
                notes.enter_handler()
            elif "dependant" in kwargs:
                # The endpoint runs in a thread and begins when one is free.
                dependant = copy.copy(kwargs["dependant"])
                dependant.call = wrapt.FunctionWrapper(dependant.call, _Entered(notes))
                kwargs = {**kwargs, "dependant": dependant}
    return await wrapped(*args, **kwargs)


class _Entered:
    def __init__(self, notes: state.RequestState) -> None:
        self._notes = notes

    def __call__(self, wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with guard("fastapi.endpoint"):
            self._notes.enter_handler()
        return wrapped(*args, **kwargs)


def _authenticate(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The backend of `AuthenticationMiddleware` is timed from the first request on that it sees."""
    with guard("fastapi.authentication"):
        wrap(type(instance.backend), "authenticate", _authenticate_backend, group=__name__)
    return wrapped(*args, **kwargs)


async def _authenticate_backend(
    wrapped: Callable[..., Awaitable[Any]], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    span = _check("authenticate")
    if span is None:
        return await wrapped(*args, **kwargs)
    with _ended(span), recorder.use(span):
        return await wrapped(*args, **kwargs)


def _check_limit(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    span = _check("rate_limit")
    if span is None:
        return wrapped(*args, **kwargs)
    with _ended(span), recorder.use(span):
        return wrapped(*args, **kwargs)


def _check(name: str) -> LiveSpan | None:
    with guard("fastapi.check"):
        request = recorder.request_span()
        if request is not None:
            return recorder.start(name, scope=SCOPE, stage=Stage.GATEWAY, parent=state.of(request).parse or request)
    return None
