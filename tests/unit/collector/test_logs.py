"""Logs for programs: one JSON object a line, whatever is said."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys

from promptpath.collector.logs import JsonFormatter


def test_a_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("bad\nluck")
    except ValueError:
        record = logging.LogRecord("a.b", logging.WARNING, "f", 1, 'said "%s"\n%d', ("日本", 3), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert abs(dt.datetime.fromisoformat(found.pop("time")).timestamp() - record.created) < 0.002
    assert found.pop("exception").endswith("ValueError: bad\nluck")
    assert found == {"level": "warning", "logger": "a.b", "message": 'said "日本"\n3', "thread": "MainThread"}
