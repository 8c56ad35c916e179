"""What a reader may ask of the embedded engine.

`readonly = 1` refuses writes, settings and most table functions. It does not refuse `file()` as a scalar function,
`INTO OUTFILE`, `DESCRIBE` of a table function, or `KILL`: on a server these are other rights, which an embedded engine
does not have. So the query is looked at as well, in the engine's own spelling of it (`formatQuerySingleLine`),
without comments and other ways to write a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
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
#: A string, a quoted name, a word, or any other character. Read from the left, so that no quote is taken for another.
_TOKEN: Final = re.compile(
    r"""('(?:[^'\\]|\\.|'')*')|`((?:[^`\\]|\\.|``)*)`|"((?:[^"\\]|\\.|"")*)"|(\w+)|(\S)""", re.DOTALL
)
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
    """Refuses an INSERT by its first word, before anything tries to parse the data that may follow it.

    Raises:
        SqlError: READONLY.
    """
    if _first_word(query) == "INSERT":
        raise SqlError(READONLY, "Cannot execute query in readonly mode: INSERT")


def _first_word(query: str) -> str:
    match = _FIRST_WORD.match(query)
    return match[1].upper() if match else ""


def check_canonical(canonical: str, table_functions: frozenset[str]) -> Checked:
    """Looks at a query in the engine's canonical spelling.

    Args:
        canonical: what `formatQuerySingleLine` makes of the query.
        table_functions: names of all table functions that the engine has.

    Raises:
        SqlError: READONLY where it reaches outside the store, NOT_IMPLEMENTED for INTO OUTFILE.
    """
    word = _first_word(canonical)
    if word not in _STATEMENTS:
        raise SqlError(READONLY, f"Cannot execute query in readonly mode: {word}")
    tokens = _tokens(canonical)
    if ("INTO", "OUTFILE") in pairwise(tokens):
        raise SqlError(NOT_IMPLEMENTED, "INTO OUTFILE is not allowed")
    refused = {name.lower() for name in table_functions - _TABLE_FUNCTIONS} | _FUNCTIONS
    for token, following in pairwise(tokens):
        name = token.removeprefix(_QUOTED).lower()
        if following == "(" and (name in refused or name.startswith(_FUNCTION_PREFIXES)):
            raise SqlError(READONLY, f"Cannot use function {name} in readonly mode: it reaches outside the store")
    return Checked(_format(tokens), _SETTINGS_PROBE.fullmatch(canonical) is not None)


def _tokens(canonical: str) -> list[str]:
    """Words and signs as they are, strings as `''`, quoted names behind a mark that no word has."""
    tokens: list[str] = []
    for string, backticked, double_quoted, word, sign in _TOKEN.findall(canonical):
        if sign and sign in "'`\"":
            raise SqlError(READONLY, "Cannot execute query in readonly mode: a quote that does not end")
        tokens.append("''" if string else word or sign or _QUOTED + (backticked or double_quoted))
    return tokens


def _format(tokens: list[str]) -> str:
    """The name behind the last FORMAT that ends the query, or only has SETTINGS behind it."""
    for index in range(len(tokens) - 2, -1, -1):
        if tokens[index] == "FORMAT" and tokens[index + 1].isidentifier():
            return tokens[index + 1] if tokens[index + 2 : index + 3] in ([], ["SETTINGS"]) else ""
    return ""


#: Before a quoted name, which could read INTO or FORMAT.
_QUOTED: Final = "`"
