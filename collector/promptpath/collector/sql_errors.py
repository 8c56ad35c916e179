"""ClickHouse's errors as its HTTP interface gives them: a code, a name, a text, an HTTP status."""

from __future__ import annotations

import re
from typing import Final

SYNTAX_ERROR: Final = 62
BAD_ARGUMENTS: Final = 36
NOT_IMPLEMENTED: Final = 48
UNKNOWN_FORMAT: Final = 73
READONLY: Final = 164
TOO_MANY_SIMULTANEOUS_QUERIES: Final = 202
QUERY_IS_TOO_LARGE: Final = 223
AUTHENTICATION_FAILED: Final = 516
UNKNOWN_EXCEPTION: Final = 1002

#: Names of the codes that this program raises by itself.
_NAMES: Final = {
    SYNTAX_ERROR: "SYNTAX_ERROR",
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    UNKNOWN_FORMAT: "UNKNOWN_FORMAT",
    READONLY: "READONLY",
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
    **dict.fromkeys(("READONLY", "ACCESS_DENIED", "DATABASE_ACCESS_DENIED", "AUTHENTICATION_FAILED"), 403),
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
_CODE: Final = re.compile(r"Code: (\d+)\. ")
_NAME: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")
_VERSION_TRAILER: Final = re.compile(r"\s*\(version [^)]*\)(?=\. \(|\s*$)")


class SqlError(Exception):
    """A query failed. `str()` is the text that ClickHouse would answer, without the version."""

    def __init__(self, code: int, message: str, name: str = "") -> None:
        self.code = code
        self.name = name or _NAMES.get(code, "")
        super().__init__(f"Code: {code}. DB::Exception: {message}. ({self.name})")

    @classmethod
    def of_engine(cls, error: BaseException) -> SqlError:
        """From what the engine raised, whose text has everything but the structure."""
        text = str(error).strip()
        start = text.find("Code: ")
        code = _CODE.search(text)
        if start < 0 or code is None:
            return cls(UNKNOWN_EXCEPTION, text or type(error).__name__)
        names = _NAME.findall(text)
        found = cls(int(code[1]), "", names[-1] if names else "UNKNOWN_EXCEPTION")
        found.args = (_VERSION_TRAILER.sub("", text[start:]),)
        return found

    @property
    def http_status(self) -> int:
        if self.name.startswith("CANNOT_PARSE"):
            return 400
        return _STATUSES.get(self.name, 500)
