"""ClickHouse's errors as its HTTP interface gives them: a code, a name, a text, an HTTP status."""

from __future__ import annotations

import re
from typing import Final

SYNTAX_ERROR: Final = 62
BAD_ARGUMENTS: Final = 36
UNKNOWN_DATABASE: Final = 81
NOT_IMPLEMENTED: Final = 48
UNKNOWN_FORMAT: Final = 73
UNKNOWN_SETTING: Final = 115
READONLY: Final = 164
REQUIRED_PASSWORD: Final = 194
TOO_MANY_SIMULTANEOUS_QUERIES: Final = 202
QUERY_IS_TOO_LARGE: Final = 223
SETTING_CONSTRAINT_VIOLATION: Final = 452
ACCESS_DENIED: Final = 497
AUTHENTICATION_FAILED: Final = 516
UNKNOWN_EXCEPTION: Final = 1002

#: Names of the codes that this program raises by itself.
_NAMES: Final = {
    SYNTAX_ERROR: "SYNTAX_ERROR",
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    UNKNOWN_FORMAT: "UNKNOWN_FORMAT",
    UNKNOWN_DATABASE: "UNKNOWN_DATABASE",
    UNKNOWN_SETTING: "UNKNOWN_SETTING",
    READONLY: "READONLY",
    REQUIRED_PASSWORD: "REQUIRED_PASSWORD",
    SETTING_CONSTRAINT_VIOLATION: "SETTING_CONSTRAINT_VIOLATION",
    ACCESS_DENIED: "ACCESS_DENIED",
    TOO_MANY_SIMULTANEOUS_QUERIES: "TOO_MANY_SIMULTANEOUS_QUERIES",
    QUERY_IS_TOO_LARGE: "QUERY_IS_TOO_LARGE",
    AUTHENTICATION_FAILED: "AUTHENTICATION_FAILED",
    UNKNOWN_EXCEPTION: "UNKNOWN_EXCEPTION",
}
#: HTTP statuses by name of the error; what is not listed is 500, as on a server.
_STATUSES: Final[dict[str, int]] = {
    **dict.fromkeys(
        (
            "SYNTAX_ERROR",
            "BAD_ARGUMENTS",
            "BAD_QUERY_PARAMETER",
            "UNKNOWN_QUERY_PARAMETER",
            "TYPE_MISMATCH",
            "INCORRECT_DATA",
            "ILLEGAL_COLUMN",
            "ILLEGAL_AGGREGATION",
            "ILLEGAL_TYPE_OF_ARGUMENT",
            "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
            "TOO_FEW_ARGUMENTS_FOR_FUNCTION",
            "TOO_MANY_ARGUMENTS_FOR_FUNCTION",
            "NOT_AN_AGGREGATE",
            "CYCLIC_ALIASES",
            "CANNOT_COMPILE_REGEXP",
            "THERE_IS_NO_COLUMN",
        ),
        400,
    ),
    "REQUIRED_PASSWORD": 401,
    **dict.fromkeys(
        (
            "READONLY",
            "ACCESS_DENIED",
            "DATABASE_ACCESS_DENIED",
            "AUTHENTICATION_FAILED",
            "SETTING_CONSTRAINT_VIOLATION",
        ),
        403,
    ),
    **dict.fromkeys(
        (
            "UNKNOWN_TABLE",
            "UNKNOWN_DATABASE",
            "UNKNOWN_FUNCTION",
            "UNKNOWN_AGGREGATE_FUNCTION",
            "UNKNOWN_IDENTIFIER",
            "UNKNOWN_TYPE",
            "UNKNOWN_STORAGE",
            "UNKNOWN_FORMAT",
            "UNKNOWN_SETTING",
        ),
        404,
    ),
    "TIMEOUT_EXCEEDED": 408,
    "QUERY_IS_TOO_LARGE": 413,
    "NOT_IMPLEMENTED": 501,
    "TOO_MANY_SIMULTANEOUS_QUERIES": 503,
}
_HEAD: Final = re.compile(r"Code: (\d+)\. (?:DB::)?\w*Exception: (?:Code: \d+\. (?:DB::)?\w*Exception: )*")
_TAIL: Final = re.compile(r"[\s.]*(?:\((?P<name>[A-Z][A-Z0-9_]+)\)|\(version [^()]*(?:\([^()]*\))?\))\.?$")


class SqlError(Exception):
    """A query failed. `str()` is the text that ClickHouse would answer, without the version."""

    def __init__(self, code: int, message: str, name: str = "") -> None:
        self.code = code
        self.name = name or _NAMES.get(code, "")
        self.message = message
        super().__init__(f"Code: {code}. DB::Exception: {message}. ({self.name})")

    @classmethod
    def of_engine(cls, error: BaseException) -> SqlError:
        """From what the engine raised. Its text repeats code and name once for each layer that it passed through."""
        text = str(error).strip()
        head = _HEAD.search(text)
        if head is None:
            return cls(UNKNOWN_EXCEPTION, text or type(error).__name__)
        message, name = text[head.end() :], ""
        while (tail := _TAIL.search(message)) is not None:
            if tail["name"] and name not in ("", tail["name"]):
                break
            name = tail["name"] or name
            message = message[: tail.start()]
        return cls(int(head[1]), message.rstrip(". "), name or "UNKNOWN_EXCEPTION")

    @property
    def http_status(self) -> int:
        if self.name.startswith("CANNOT_PARSE"):
            return 400
        return _STATUSES.get(self.name, 500)
