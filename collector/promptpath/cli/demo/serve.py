"""Runs one of the demo's applications under uvicorn."""

from __future__ import annotations

import logging

import uvicorn
from fastapi import FastAPI


def serve(app: FastAPI, *, host: str, port: int) -> None:
    """Serves until SIGINT or SIGTERM; open answers get 3 s to end."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=3)
