"""What a reader may ask of the embedded engine.

`readonly = 1` refuses writes, settings and most table functions. It does not refuse `file()` as a scalar function,
`INTO OUTFILE`, `DESCRIBE` of a table function, or `KILL`: on a server these are other rights, which an embedded engine
does not have; nor has it rights on tables. So a query is looked at as well, twice, and both times as the engine reads
it: in its canonical spelling (`formatQuerySingleLine`), without comments and other ways to write a name, and as the
tree that it makes of that spelling (`EXPLAIN AST`), which tells a table from a column and a table function from a
function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from promptpath.collector.sql_errors import (
    ACCESS_DENIED,
    NOT_IMPLEMENTED,
    READONLY,
    UNKNOWN_DATABASE,
    SqlError,
)

#: Statements that only read, by their first word.
_STATEMENTS: Final = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "EXISTS", "("})
#: And by the name of the tree's first node, with what follows it.
_ROOTS: Final = re.compile(
    r"SelectWithUnionQuery|SelectIntersectExceptQuery|SelectQuery|DescribeQuery|ShowTables|ShowColumns|ShowIndexes"
    r"|ShowFunctions|ShowEngineQuery|ShowSetting|ShowCreate(?:Table|View|Database)Query"
    r"|Exists(?:Table|View|Database)Query|Explain EXPLAIN(?: AST| SYNTAX| QUERY TREE| PIPELINE| ESTIMATE)?"
)
#: Queries within a query.
_WITHIN: Final = frozenset({"SelectIntersectExceptQuery", "SelectQuery", "SelectWithUnionQuery", "TablesInSelectQuery"})
_WHAT_SHOW_SHOWS: Final = re.compile(
    r"SHOW (?:(?:FULL |EXTENDED )*(?:TABLES|COLUMNS|INDEXES|DATABASES|FUNCTIONS|ENGINES)|(?:CHANGED )?SETTINGS|SETTING"
    r"|CREATE (?:TABLE|VIEW|DATABASE))(?: |$)"
)
#: Table functions that touch nothing but their arguments.
_TABLE_FUNCTIONS: Final = frozenset(
    {
        "generaterandom",
        "generateseries",
        "generate_series",
        "null",
        "numbers",
        "numbers_mt",
        "primes",
        "values",
        "view",
        "zeros",
        "zeros_mt",
    }
)
#: Functions that leave the store: files, other servers, models, keys, the machine. With the engine's families of them.
FUNCTIONS: Final = frozenset(
    {
        "authenticateduser",
        "authuser",
        "catboostevaluate",
        "currentrequesturl",
        "file",
        "filesystemavailable",
        "filesystemcapacity",
        "filesystemunreserved",
        "fullhostname",
        "fqdn",
        "generateserialid",
        "getclienthttpheader",
        "getmacro",
        "getmergetreesetting",
        "getoskernelversion",
        "getserverport",
        "getserversetting",
        "hascolumnintable",
        "joinget",
        "joingetornull",
        "logtrace",
        "serveruuid",
        "showcertificate",
        "tcpport",
        "zookeepersessionuptime",
    }
)
FUNCTION_FAMILIES: Final = (
    "AI",
    "Dictionary",
    "Embedded Dictionary",
    "Introspection",
    "Internal",
    "Machine Learning",
)
#: What clients and people read of the engine itself.
_SYSTEM_TABLES: Final = frozenset(
    {
        "aggregate_function_combinators",
        "build_options",
        "collations",
        "columns",
        "data_skipping_indices",
        "data_type_families",
        "databases",
        "formats",
        "functions",
        "keywords",
        "numbers",
        "numbers_mt",
        "one",
        "projections",
        "settings",
        "table_engines",
        "table_functions",
        "tables",
        "time_zones",
        "zeros",
        "zeros_mt",
    }
)
#: Of all tenants at once: not for a caller who is bound to one.
_SYSTEM_TABLES_OF_ALL: Final = frozenset({"detached_parts", "merges", "mutations", "parts", "parts_columns"})
_INFORMATION_SCHEMAS: Final = ("information_schema", "INFORMATION_SCHEMA")

_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*.*?\*/)*(\w+|\()", re.DOTALL)
#: A string, a quoted name, a word, or any other character. Read from the left, so that no quote is taken for another.
_TOKEN: Final = re.compile(
    r"""('(?:[^'\\]|\\.|'')*')|`((?:[^`\\]|\\.|``)*)`|"((?:[^"\\]|\\.|"")*)"|(\w+)|(\S)""", re.DOTALL
)
_SETTINGS_PROBE: Final = re.compile(
    r"SELECT name, value, readonly(?: AS readonly)? FROM system\.settings(?: LIMIT \d+)?(?: FORMAT \w+)?"
)
_NODE: Final = re.compile(r"( *)(.*)", re.DOTALL)
_CHILDREN: Final = re.compile(r" \(children \d+\)$")
_ALIAS: Final = re.compile(r" \(alias .*\)$", re.DOTALL)
#: Functions whose second argument may be a table.
_IN: Final = re.compile(r"Function (?:global)?(?:not)?(?:null)?in(?:ignoreset)?\b", re.IGNORECASE)
#: In a quoted name: an escape of anything but the signs that need one.
_ODD_ESCAPE: Final = re.compile(r"""(?<!\\)(?:\\\\)*\\[^\\`"']|[\x00-\x1f]""")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]|\\")
_IDENTIFIER_PARAM: Final = re.compile(r"\{(\w+):Identifier\}")
#: Before a quoted name, which could read INTO or FORMAT.
_QUOTED: Final = "`"


@dataclass(frozen=True)
class Checked:
    """A query that may run.

    `body`: without its FORMAT; `format`: the one that it names, or "". `is_select`: it can be streamed.
    """

    body: str
    format: str
    is_select: bool
    #: Clients read which settings they may send.
    is_settings_probe: bool


@dataclass(frozen=True)
class Access:
    """What a caller may read. `hidden`: names in the store's database that are not for callers."""

    database: str
    tables: frozenset[str]
    hidden: frozenset[str]
    #: Names in `system`, all of them.
    system: frozenset[str]
    #: Bound to a tenant.
    is_tenant: bool = False

    def databases(self) -> frozenset[str]:
        """Databases whose tables may be listed."""
        return frozenset({self.database, "system", *_INFORMATION_SCHEMAS})

    def require(self, database: str, table: str) -> None:
        """Raises SqlError where a table is there and not for this caller."""
        if database == self.database:
            if table in self.hidden or table.startswith("."):
                raise SqlError(ACCESS_DENIED, f"Not enough privileges to read {database}.{table}: {self._instead()}")
        elif database == "system":
            allowed = _SYSTEM_TABLES if self.is_tenant else _SYSTEM_TABLES | _SYSTEM_TABLES_OF_ALL
            if table not in allowed and table in self.system:
                raise SqlError(ACCESS_DENIED, f"Not enough privileges to read {database}.{table}")
        elif database not in _INFORMATION_SCHEMAS:
            raise SqlError(READONLY, f"Cannot read {database}.{table}: it is outside the store")

    def _instead(self) -> str:
        return f"readable are {', '.join(sorted(self.tables))}"


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


def check_canonical(canonical: str, functions: frozenset[str], access: Access) -> Checked:
    """Looks at a query in the engine's canonical spelling.

    Args:
        canonical: what `formatQuerySingleLine` makes of the query.
        functions: names of functions that are refused, in lower case.

    Raises:
        SqlError: READONLY where it does anything but read or reaches outside the store, ACCESS_DENIED where it names
            what is not for this caller, NOT_IMPLEMENTED for INTO OUTFILE.
    """
    word = _first_word(canonical)
    if word not in _STATEMENTS:
        raise SqlError(READONLY, f"Cannot execute query in readonly mode: {word}")
    if "\n" in canonical:  # strings and names are escaped: there is none that is not meant to deceive
        raise SqlError(READONLY, "Cannot execute query in readonly mode: a line break in its canonical form")
    spans = list(_tokens(canonical))
    tokens = [token for token, _ in spans]
    if ("INTO", "OUTFILE") in pairwise(tokens):
        raise SqlError(NOT_IMPLEMENTED, "INTO OUTFILE is not allowed")
    names = [token.removeprefix(_QUOTED) for token in tokens]
    for index, (token, following) in enumerate(pairwise([*tokens, ""])):
        name = names[index].lower()
        if (following == "(" or tokens[index - 1] == "APPLY") and (name in functions):
            raise SqlError(READONLY, f"Cannot use function {name} in readonly mode: it reaches outside the store")
        # Of a lambda there, the tree shows nothing.
        if token == "APPLY" and (following == "(" or tokens[index + 2 : index + 4] == ["-", ">"]):
            raise SqlError(NOT_IMPLEMENTED, "APPLY of a lambda is not allowed: name a function")
        if following == "." and index + 2 < len(names) and names[index] in access.databases():
            access.require(names[index], names[index + 2])
        elif names[index] in access.hidden:
            access.require(access.database, names[index])
    if word == "SHOW" and _WHAT_SHOW_SHOWS.match(canonical) is None:
        raise SqlError(READONLY, f"Cannot execute query in readonly mode: {canonical[:40]}")
    if word in ("SHOW", "EXISTS"):
        _check_places(word, tokens, access)
    at, name = _format(tokens)
    end = spans[at][1] if at >= 0 else len(canonical)
    return Checked(
        body=canonical[:end].rstrip(),
        format=name,
        is_select=word in ("SELECT", "WITH", "("),
        is_settings_probe=_SETTINGS_PROBE.fullmatch(canonical) is not None,
    )


def check_tree(tree: str, access: Access, database: str) -> None:
    """Looks at the tree of a query: `EXPLAIN AST`, one node a line, indented by its depth.

    Args:
        database: the current one, which names without one are looked for in.

    Raises:
        SqlError: READONLY, ACCESS_DENIED.
    """
    #: The nodes above the one at hand, and the number of children of each so far.
    above: list[list[object]] = []
    for number, line in enumerate(tree.splitlines()):
        match = _NODE.fullmatch(line)
        assert match is not None
        depth, text = len(match[1]), _CHILDREN.sub("", match[2])
        del above[depth:]
        parent = str(above[-1][0]) if above else ""
        position = 0
        if above:
            position = int(str(above[-1][1]))
            above[-1][1] = position + 1
        above.append([text, 0])
        kind, _, rest = text.partition(" ")
        if number == 0:
            _check_root(kind if kind != "Explain" else text, access)
        elif kind.endswith("Query") and kind not in _WITHIN:
            raise SqlError(READONLY, f"Cannot execute query in readonly mode: {kind}")
        elif kind == "Set" and not (len(above) == 2 and position == 0 and parent.startswith("Explain")):
            # In a subquery they would be applied in spite of `readonly`.
            raise _no_settings()
        elif kind == "TableIdentifier":
            _check_table(_ALIAS.sub("", rest), access, database)
        elif kind == "Function" and parent == "TableExpression":
            name = _ALIAS.sub("", rest)
            if name.lower() not in _TABLE_FUNCTIONS:
                raise SqlError(READONLY, f"Cannot use table function {name} in readonly mode")
        elif kind == "Identifier" and position == 1 and len(above) > 2 and _IN.match(str(above[-3][0])):
            _check_table(_ALIAS.sub("", rest), access, database, or_column=True)


def _check_root(root: str, access: Access) -> None:
    if _ROOTS.fullmatch(root) is None and not root.startswith(("Show", "Exists")):
        raise SqlError(READONLY, f"Cannot execute query in readonly mode: {root}")
    if root.startswith(("Show", "Exists")) and _ROOTS.fullmatch(root.partition(" ")[0]) is None:
        raise SqlError(READONLY, f"Cannot execute query in readonly mode: {root}")
    if access.is_tenant and root.startswith("Explain") and not root.endswith((" AST", " SYNTAX")):
        raise SqlError(ACCESS_DENIED, f"{root.partition(' ')[2]} tells of all tenants: use EXPLAIN AST or SYNTAX")


def _check_table(text: str, access: Access, current: str, *, or_column: bool = False) -> None:
    database, dot, table = text.partition(".")
    if not dot:
        access.require(current, text)
        return
    if or_column and database not in access.databases():
        return  # a column of a table, or the engine's complaint
    access.require(database, table)


def _check_places(word: str, tokens: list[str], access: Access) -> None:
    """Databases that SHOW and EXISTS name: what is listed, or is there, is a secret of other databases too."""
    after = {"FROM", "IN"} if word == "SHOW" else {"TABLE", "VIEW", "DATABASE", "DICTIONARY", "TEMPORARY"}
    if word == "SHOW" and tokens[1] == "CREATE":
        after = {"TABLE", "VIEW", "DATABASE"}
    of_tables = word == "SHOW" and "TABLES" in tokens[1:4]
    for index, token in enumerate(tokens[:-1]):
        if token not in after or index + 1 >= len(tokens):
            continue
        name = tokens[index + 1].removeprefix(_QUOTED)
        qualified = tokens[index + 2 : index + 3] == ["."]
        is_database = of_tables or token == "DATABASE" or qualified or _is_second(tokens, index, after)
        if is_database and name not in access.databases():
            raise SqlError(UNKNOWN_DATABASE, f"Database {name} does not exist, or is not for callers")


def _is_second(tokens: list[str], index: int, after: set[str]) -> bool:
    """SHOW COLUMNS FROM table FROM database."""
    return tokens[0] == "SHOW" and tokens[1] != "CREATE" and any(token in after for token in tokens[:index])


def _tokens(canonical: str) -> Iterator[tuple[str, int]]:
    """Words and signs as they are, strings as `''`, quoted names behind a mark that no word has; and where each is."""
    for match in _TOKEN.finditer(canonical):
        string, backticked, double_quoted, word, sign = match.groups()
        if sign and sign in "'`\"":
            raise SqlError(READONLY, "Cannot execute query in readonly mode: a quote that does not end")
        quoted = backticked if backticked is not None else double_quoted or ""
        if _ODD_ESCAPE.search(quoted):
            raise SqlError(READONLY, "Cannot execute query in readonly mode: a name with control characters")
        name = re.sub(r"\\(.)", r"\1", quoted) if "\\" in quoted else quoted
        yield "''" if string is not None else word or sign or _QUOTED + name, match.start()


def check_identifiers(canonical: str, params: Mapping[str, str]) -> None:
    """Refuses names given as parameters that would look like more than a name in the tree.

    Raises:
        SqlError: READONLY.
    """
    for name in _IDENTIFIER_PARAM.findall(canonical):
        if _CONTROL.search(params.get(name, "")):
            raise SqlError(READONLY, "Cannot execute query in readonly mode: a name with control characters")


def _format(tokens: list[str]) -> tuple[int, str]:
    """Where the FORMAT that ends the query is, and its name; -1 for none."""
    at = len(tokens) - 2
    if at > 0 and tokens[at] == "FORMAT" and tokens[at + 1].isidentifier():
        return at, tokens[at + 1]
    if "FORMAT" in tokens and "SETTINGS" in tokens[tokens.index("FORMAT") :]:
        raise _no_settings()
    return -1, ""


def _no_settings() -> SqlError:
    return SqlError(READONLY, "Cannot modify settings within a query: send them as parameters of the URL")


def tenant_column(columns: Iterable[str]) -> str:
    """The column that says whose a row is by the token that it came with, or ""."""
    return next((name for name in ("Tenant", "token_tenant") if name in columns), "")
