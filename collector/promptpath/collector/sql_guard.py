"""What a reader may ask of the embedded engine.

`readonly = 1` refuses writes, settings and most table functions. It does not refuse `file()` as a scalar function,
`INTO OUTFILE`, `DESCRIBE` of a table function, or `KILL`: on a server these are other rights, which an embedded engine
does not have. So the query is looked at as well, in the engine's own spelling of it (`formatQuerySingleLine`),
without comments and other ways to write a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from promptpath.collector.sql_errors import (
    NOT_IMPLEMENTED,
    READONLY,
    SqlError,
)

#: Statements that only read, by their first word.
_STATEMENTS: Final = frozenset(
    {"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "FROM", "VALUES", "("}
)
#: Table functions that touch nothing but the store and constants. Every other one of the engine's is refused.
_TABLE_FUNCTIONS: Final = frozenset(
    {
        "dictionary",
        "format",
        "generateRandom",
        "generateSeries",
        "generate_series",
        "merge",
        "mergeTreeIndex",
        "mergeTreeProjection",
        "null",
        "numbers",
        "numbers_mt",
        "primes",
        "SQLStandardValues",
        "timeSeriesData",
        "timeSeriesMetrics",
        "timeSeriesTags",
        "values",
        "view",
        "zeros",
        "zeros_mt",
    }
)
#: Ordinary functions that leave the engine: files, other servers, models.
_FUNCTIONS: Final = frozenset({"file", "hascolumnintable", "catboostevaluate", "getmacro", "showcertificate"})
_FUNCTION_PREFIXES: Final = ("ai", "addressto")

_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*.*?\*/)*(\w+|\()", re.DOTALL)
_STRING: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_CALL: Final = re.compile(r"(`(?:[^`\\]|\\.|``)*`|\"(?:[^\"\\]|\\.)*\"|\w+)\s*\(", re.DOTALL)
_OUTFILE: Final = re.compile(r"\bINTO OUTFILE\b", re.IGNORECASE)
_FORMAT: Final = re.compile(r"\bFORMAT (\w+)(?: SETTINGS .*)?$")
_SETTINGS_PROBE: Final = re.compile(
    r"SELECT name, value, readonly(?: AS readonly)? FROM system\.settings(?: LIMIT \d+)?(?: FORMAT \w+)?"
)


@dataclass(frozen=True)
class Checked:
    """A query that may run. `format` is the one it names itself, or ""."""

    format: str
    #: Clients read which settings they may send; on a read-only handle the answer would be "none".
    is_settings_probe: bool


def check_statement(query: str) -> None:
    """Refuses by the first word what can only be a write, before anything parses it (its data may follow it).

    Raises:
        SqlError: READONLY.
    """
    match = _FIRST_WORD.match(query)
    word = match[1].upper() if match else ""
    if word not in _STATEMENTS:
        raise SqlError(
            READONLY, f"Cannot execute query in readonly mode: {word or 'an empty query'} is no reading statement"
        )


def check_canonical(canonical: str, table_functions: frozenset[str]) -> Checked:
    """Looks at a query in the engine's canonical spelling.

    Args:
        canonical: what `formatQuerySingleLine` makes of the query.
        table_functions: names of all table functions that the engine has.

    Raises:
        SqlError: READONLY where it reaches outside the store, NOT_IMPLEMENTED for INTO OUTFILE.
    """
    check_statement(canonical)
    bare = _STRING.sub("''", canonical)
    if _OUTFILE.search(bare):
        raise SqlError(NOT_IMPLEMENTED, "INTO OUTFILE is not allowed")
    refused = {name.lower() for name in table_functions - _TABLE_FUNCTIONS} | _FUNCTIONS
    for quoted in _CALL.findall(bare):
        name = quoted.strip('`"').lower()
        if name in refused or name.startswith(_FUNCTION_PREFIXES):
            raise SqlError(READONLY, f"Cannot use function {name} in readonly mode: it reaches outside the store")
    match = _FORMAT.search(bare)
    return Checked(match[1] if match else "", _SETTINGS_PROBE.fullmatch(canonical) is not None)
