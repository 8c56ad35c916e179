"""What the collector says while it runs: lines for people, or a JSON object a line for programs."""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import Any, Final, Literal

LogFormat = Literal["text", "json"]
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", "thread"}`, and `exception` where there is one; one line each."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False, default=str)


def set_up(log_format: LogFormat, level: str) -> None:
    """Logging of this process, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
