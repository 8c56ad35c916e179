"""What is said of an error of the database, and of the operating system."""

from __future__ import annotations

import pytest

from promptpath.cli.errors import database_error, one_line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Received ClickHouse exception, code: 50, server response: Code: 50. DB::Exception: Code: 50. "
            "DB::Exception: Internal type 'Nothing' is not supported. (UNKNOWN_TYPE). (UNKNOWN_TYPE) "
            "(version 26.9.2.1) (for url http://127.0.0.1:48583)",
            "Internal type 'Nothing' is not supported. (UNKNOWN_TYPE)",
        ),
        (
            "Code: 62. DB::Exception: Syntax error: failed at position 1 (SELEKT): SELEKT 1. Expected one of: SELECT. "
            "(SYNTAX_ERROR) (version 25.3.1.1 (official build))",
            "Syntax error: failed at position 1 (SELEKT): SELEKT 1. (SYNTAX_ERROR)",
        ),
        ("DB::Exception: no tail", "no tail"),
    ],
)
def test_database_error(text: str, told: str) -> None:
    assert database_error(text) == told


def test_operating_system_error() -> None:
    assert one_line(PermissionError(13, "Permission denied", "/srv/x")) == "/srv/x: Permission denied"
    assert one_line(ValueError("a fault in the program")) is None
