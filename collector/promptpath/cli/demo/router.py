"""The demo's router: chooses an inference server by model, and the next one when the first fails.

`python -m promptpath.cli.demo.router --port 8090 --route MODEL=URL,URL ...`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response

from promptpath.cli.demo.openai_format import CHAT_PATH, error
from promptpath.cli.demo.relay import Relay, Target, relaying_app
from promptpath.cli.demo.serve import serve


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model as a server has it: the name it goes by there, and the server's base URL."""

    model: str
    url: str

    @classmethod
    def parse(cls, text: str) -> Deployment:
        """From `MODEL@URL`."""
        model, at, url = text.partition("@")
        if not (model and at and url.startswith("http")):
            raise ValueError(f"{text!r} is no deployment: write MODEL@URL")
        return cls(model, url.rstrip("/"))


def create_app(routes: Mapping[str, Sequence[Deployment]]) -> FastAPI:
    """The router's application. `routes`: the model asked for, to the deployments in the order they are tried."""

    app = relaying_app("router")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"models": sorted(routes)}

    @app.post(CHAT_PATH, response_model=None)
    async def chat_completions(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            deployments = routes.get(body["model"])
        except (ValueError, KeyError, TypeError):
            raise error(400, "the body is no chat completion request", "invalid_request_error") from None
        if deployments is None:
            raise error(404, f"the model {body['model']!r} is not known", "invalid_request_error", "model_not_found")
        targets = [
            Target(deployment.url + CHAT_PATH, json.dumps(body | {"model": deployment.model}).encode())
            for deployment in deployments
        ]
        return Relay(request.app.state.client, targets)

    return app


def main() -> None:
    """Serves until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m promptpath.cli.demo.router", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--route",
        action="append",
        required=True,
        metavar="MODEL=DEPLOYMENT[,DEPLOYMENT]",
        help="a DEPLOYMENT is MODEL@URL; the next is tried when one fails before its first token",
    )
    args = parser.parse_args()
    routes: dict[str, list[Deployment]] = {}
    for route in args.route:
        model, _, deployments = route.partition("=")
        try:
            routes[model] = [Deployment.parse(text) for text in deployments.split(",")]
        except ValueError as wrong:
            parser.error(str(wrong))
    serve(create_app(routes), host=args.host, port=args.port)


if __name__ == "__main__":
    main()
