"""The demo's gateway: API keys, a rate limit for each key, and a policy on the length of prompts.

`python -m promptpath.cli.demo.gateway --port 8080 --upstream http://127.0.0.1:8090`
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from opentelemetry import trace

from promptpath.cli.demo.openai_format import CHAT_PATH, error
from promptpath.cli.demo.relay import Relay, Target, relaying_app
from promptpath.cli.demo.serve import serve
from promptpath.semconv import TENANT


@dataclass
class TokenBucket:
    """Lets `burst` requests pass at once, and `per_s` a second for ever."""

    per_s: float
    burst: float
    _level: float = field(init=False)
    _at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._level, self._at_s = self.burst, time.monotonic()

    def take(self) -> float:
        """Takes one. 0: it passes; else the seconds until one would."""
        now_s = time.monotonic()
        self._level = min(self.burst, self._level + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        if self._level >= 1:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self.per_s


@dataclass
class Tenant:
    """Who a key belongs to, and how much they may ask."""

    name: str
    bucket: TokenBucket


def demo_keys() -> dict[str, Tenant]:
    """The keys that the demo's client uses."""
    return {
        "demo-key-analytics": Tenant("analytics", TokenBucket(per_s=100, burst=200)),
        "demo-key-support": Tenant("support", TokenBucket(per_s=100, burst=200)),
        "demo-key-trial": Tenant("trial", TokenBucket(per_s=1 / 3600, burst=2)),
    }


def create_app(upstream: str, keys: Mapping[str, Tenant], *, max_prompt_chars: int) -> FastAPI:
    """The gateway's application; what passes is sent to `upstream`, a base URL."""

    app = relaying_app("gateway")
    bearer = HTTPBearer(auto_error=False)

    async def authenticate(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> Tenant:
        tenant = keys.get(credentials.credentials) if credentials is not None else None
        if tenant is None:
            raise error(401, "the API key is missing or not known", "invalid_request_error", "invalid_api_key")
        trace.get_current_span().set_attribute(TENANT, tenant.name)
        return tenant

    async def rate_limit(tenant: Annotated[Tenant, Depends(authenticate)]) -> Tenant:
        wait_s = tenant.bucket.take()
        if wait_s:
            raise error(
                429, f"too many requests for {tenant.name}", "requests", "rate_limit_exceeded", max(1.0, wait_s)
            )
        return tenant

    async def prompt_policy(request: Request, _tenant: Annotated[Tenant, Depends(rate_limit)]) -> bytes:
        try:
            body = await request.json()
            length = sum(len(str(message["content"])) for message in body["messages"])
        except (ValueError, KeyError, TypeError):
            raise error(400, "the body is no chat completion request", "invalid_request_error") from None
        if length > max_prompt_chars:
            raise error(
                413,
                f"the prompt has {length} characters, {max_prompt_chars} are allowed",
                "invalid_request_error",
                "prompt_too_long",
            )
        return await request.body()

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    @app.post(CHAT_PATH, response_model=None)
    async def chat_completions(
        request: Request,
        body: Annotated[bytes, Depends(prompt_policy)],
    ) -> Response:
        return Relay(request.app.state.client, [Target(upstream + CHAT_PATH, body)])

    return app


def main() -> None:
    """Serves until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m promptpath.cli.demo.gateway", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="base URL of the router")
    parser.add_argument("--max-prompt-chars", type=int, default=6000)
    args = parser.parse_args()
    app = create_app(args.upstream, demo_keys(), max_prompt_chars=args.max_prompt_chars)
    serve(app, host=args.host, port=args.port)


if __name__ == "__main__":
    main()
