"""What a FastAPI gateway checks, as stages; and where parsing ends in a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Security
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from pydantic import BaseModel
from slowapi import Limiter
from slowapi.util import get_remote_address
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from promptpath.instrumentation.shims.client.httpx import HttpxInstrumentor
from promptpath.instrumentation.shims.gateway.fastapi import FastApiInstrumentor

from .running import Spans, attributes_of, scope_of, serve

PATH = "/v1/chat/completions"
Shape = list[tuple[str, str | None, str | None, str | None]]


class Body(BaseModel):
    model: str
    messages: list[dict[str, str]] = []


@pytest.fixture
def post() -> Iterator[Any]:
    HttpxInstrumentor().uninstrument()
    with httpx.Client(headers={"authorization": "Bearer key"}) as client:
        yield lambda url, **headers: client.post(url + PATH, json={"model": "tiny"}, headers=headers)
    HttpxInstrumentor().instrument(skip_dep_check=True)


def shape(spans: Spans, count: int) -> Shape:
    """Name, stage, parent and error of each span."""
    return [
        (s["name"], s["attributes"].get("promptpath.stage"), s["parent"], s["attributes"].get("error.type"))
        for s in spans.dicts(count)
    ]


ROOT = (f"POST {PATH}", "gateway", None, None)
bearer = HTTPBearer(auto_error=False)


async def authenticate(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str:
    await asyncio.sleep(0.002)
    if credentials is None or credentials.credentials != "key":
        raise HTTPException(401, "no such key")
    return credentials.credentials


def rate_limit(key: Annotated[str, Depends(authenticate)]) -> str:
    return key


async def settings() -> dict[str, str]:
    return {}


async def database() -> AsyncIterator[str]:
    yield "connection"


def audit_log() -> Iterator[str]:
    yield "log"


async def whoami(
    scopes: SecurityScopes, key: Annotated[str | None, Security(APIKeyHeader(name="k", auto_error=False))]
) -> str:
    return scopes.scope_str


class PromptPolicy:
    """A dependency that is an instance."""

    async def __call__(self, body: Body) -> None:
        if body.model == "forbidden":
            raise HTTPException(403)


def _app(**options: Any) -> FastAPI:
    app = FastAPI(**options)

    @app.post(PATH, dependencies=[Depends(PromptPolicy())])
    async def chat(
        body: Body,
        key: Annotated[str, Depends(rate_limit)],
        again: Annotated[str, Depends(authenticate)],
        values: Annotated[dict[str, str], Depends(settings)],
        connection: Annotated[str, Depends(database)],
        log: Annotated[str, Depends(audit_log)],
    ) -> dict[str, Any]:
        return {"seen": [body.model, key, again, values, connection, log]}

    return app


SEEN = {"seen": ["tiny", "key", "key", {}, "connection", "log"]}
STAGES: Shape = [
    ROOT,
    ("PromptPolicy", "gateway", ROOT[0], None),
    ("HTTPBearer", "gateway", ROOT[0], None),
    ("authenticate", "gateway", ROOT[0], None),
    ("rate_limit", "gateway", ROOT[0], None),
    ("settings", "gateway", ROOT[0], None),
    ("database", "gateway", ROOT[0], None),
    ("audit_log", "gateway", ROOT[0], None),
]


def test_dependencies_are_stages(spans: Spans, post: Any) -> None:
    with serve(_app()) as url:
        assert post(url).json() == SEEN
    assert shape(spans, 8) == STAGES
    authenticated = spans.named("authenticate")
    assert authenticated.end_time is not None
    assert authenticated.start_time is not None
    assert authenticated.end_time - authenticated.start_time > 2_000_000


def test_each_request_has_its_own(spans: Spans, post: Any) -> None:
    with serve(_app()) as url:
        for _ in range(3):
            assert post(url).json() == SEEN
    assert shape(spans, 24) == STAGES * 3


def test_a_refusal(spans: Spans, post: Any) -> None:
    with serve(_app()) as url:
        answer = post(url, authorization="Bearer wrong")
    assert (answer.status_code, answer.json()) == (401, {"detail": "no such key"})
    assert shape(spans, 4) == [*STAGES[:3], ("authenticate", "gateway", ROOT[0], "401")]
    (root, *_, refused) = spans.all()
    assert root.status.status_code.name == "UNSET"
    assert refused.status.status_code.name == "ERROR"


def test_overrides_still_override(spans: Spans, post: Any) -> None:
    app = _app()
    app.dependency_overrides[authenticate] = lambda: "key"
    with serve(app) as url:
        assert post(url, authorization="Bearer wrong").json() == SEEN
    assert "authenticate" not in {name for name, *_ in shape(spans, 6)}


def test_the_application_is_as_it_was(spans: Spans, post: Any) -> None:
    app = _app()
    schema = app.openapi()
    dependant = app.routes[-1].dependant  # type: ignore[attr-defined]
    calls = [dependency.call for dependency in dependant.dependencies]
    with serve(app) as url:
        post(url)
    assert [dependency.call for dependency in dependant.dependencies] == calls
    assert all(type(call) in (type(settings), PromptPolicy) for call in calls)
    app.openapi_schema = None
    assert app.openapi() == schema


def test_generators_are_closed_and_see_the_error(spans: Spans, post: Any) -> None:
    seen: list[str] = []

    async def audit_async() -> AsyncIterator[None]:
        try:
            yield
        except HTTPException as error:
            seen.append(f"async {error.status_code}")
            raise
        finally:
            seen.append("async closed")

    def audit_sync() -> Iterator[None]:
        try:
            yield
        except HTTPException as error:
            seen.append(f"sync {error.status_code}")
            raise
        finally:
            seen.append("sync closed")

    app = FastAPI()

    @app.post(PATH, dependencies=[Depends(audit_async), Depends(audit_sync)])
    async def chat() -> None:
        raise HTTPException(418)

    with serve(app) as url:
        assert post(url).status_code == 418
        FastApiInstrumentor().uninstrument()
        ours, seen[:] = list(seen), []
        assert post(url).status_code == 418
    assert ours == seen == ["sync 418", "sync closed", "async 418", "async closed"]


def test_a_security_scheme_with_scopes(spans: Spans, post: Any) -> None:
    app = FastAPI()

    @app.post(PATH)
    async def chat(user: Annotated[str, Security(whoami, scopes=["a", "b"])]) -> str:
        return user

    with serve(app) as url:
        assert post(url).json() == "a b"
    assert shape(spans, 3) == [ROOT, ("APIKeyHeader", "gateway", ROOT[0], None), ("whoami", "gateway", ROOT[0], None)]


def test_other_paths_have_no_spans(spans: Spans) -> None:
    app = FastAPI()

    @app.get("/me")
    async def me(key: Annotated[str, Depends(authenticate)]) -> str:
        return key

    with serve(app) as url:
        assert httpx.get(url + "/me", headers={"authorization": "Bearer key"}).json() == "key"
    assert {scope_of(span) for span in spans.all()} <= {"fastapi"}


def test_a_routers_own_work_is_the_routers(spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPATH_ROLE", "router")
    with serve(_app()) as url:
        post(url)
    stages = {name: stage for name, stage, *_ in shape(spans, 8)}
    assert stages == {
        ROOT[0]: "router",
        "PromptPolicy": "gateway",
        "HTTPBearer": "gateway",
        "authenticate": "gateway",
        "rate_limit": "gateway",
        "settings": "router",
        "database": "router",
        "audit_log": "gateway",
    }


@pytest.mark.parametrize("kind", ["async", "sync", "reads the body itself", "generator"])
def test_entering_the_endpoint_ends_parsing(
    spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PROMPTPATH_ROLE", "server")
    import time

    entered: list[int] = []
    app = FastAPI()

    if kind == "async":

        @app.post(PATH)
        async def chat(body: Body, key: Annotated[str, Depends(authenticate)]) -> None:
            entered.append(time.time_ns())
            await asyncio.sleep(0.1)

    elif kind == "sync":

        @app.post(PATH)
        def chat_sync(body: Body, key: Annotated[str, Depends(authenticate)]) -> None:
            entered.append(time.time_ns())
            time.sleep(0.1)

    elif kind == "generator":

        @app.post(PATH)
        async def chat_stream(body: Body, key: Annotated[str, Depends(authenticate)]) -> AsyncIterator[dict[str, int]]:
            entered.append(time.time_ns())
            await asyncio.sleep(0.1)
            yield {"a": 1}

    else:

        @app.post(PATH)
        async def chat_raw(request: Request, key: Annotated[str, Depends(authenticate)]) -> None:
            await request.json()
            entered.append(time.time_ns())
            await asyncio.sleep(0.1)

    with serve(app) as url:
        assert post(url).status_code == 200
    assert shape(spans, 4)[:2] == [(ROOT[0], "server", None, None), ("parse", "parse", ROOT[0], None)]
    parse = spans.named("parse")
    assert parse.end_time is not None
    # Not when the answer is there, 100 ms later.
    assert abs(parse.end_time - entered[0]) < 50_000_000
    # What is checked meanwhile is the gateway's, and lies inside.
    assert shape(spans, 4)[2:] == [("HTTPBearer", "gateway", "parse", None), ("authenticate", "gateway", "parse", None)]


def test_starlettes_authentication(spans: Spans, post: Any) -> None:
    class Backend(AuthenticationBackend):
        async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
            return AuthCredentials(["authenticated"]), SimpleUser("me")

    app = FastAPI()
    app.add_middleware(AuthenticationMiddleware, backend=Backend())

    @app.post(PATH)
    async def chat(request: Request) -> str:
        return str(request.user.display_name)

    with serve(app) as url:
        assert post(url).json() == "me"
        assert post(url).json() == "me"
    assert shape(spans, 4) == [ROOT, ("authenticate", "gateway", ROOT[0], None)] * 2
    FastApiInstrumentor().uninstrument()
    assert not hasattr(Backend.__dict__["authenticate"], "_self_wrapper")


def test_slowapis_limit(spans: Spans, post: Any) -> None:
    from slowapi import _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded

    limiter = Limiter(key_func=get_remote_address)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.post(PATH)
    @limiter.limit("1/minute")
    async def chat(request: Request) -> JSONResponse:
        return JSONResponse({})

    with serve(app) as url:
        assert [post(url).status_code, post(url).status_code] == [200, 429]
    limit = ("rate_limit", "gateway", ROOT[0])
    assert shape(spans, 4) == [ROOT, (*limit, None), ROOT, (*limit, "429")]


def test_uninstrument_takes_everything_off() -> None:
    import fastapi.routing

    names = ("solve_dependencies", "run_endpoint_function")
    assert all(hasattr(getattr(fastapi.routing, name), "_self_wrapper") for name in names)
    FastApiInstrumentor().uninstrument()
    assert not any(hasattr(getattr(fastapi.routing, name), "_self_wrapper") for name in names)


def test_errors_of_the_endpoint_are_the_endpoints(spans: Spans, post: Any) -> None:
    app = FastAPI()

    @app.post(PATH)
    async def chat(key: Annotated[str, Depends(authenticate)]) -> None:
        raise HTTPException(503)

    with serve(app) as url:
        assert post(url).status_code == 503
    errors = {span.name: attributes_of(span).get("error.type") for span in spans.wait(3)}
    assert errors == {ROOT[0]: "503", "HTTPBearer": None, "authenticate": None}
