"""Migrations: numbered SQL files, applied once each, in order, forward only.

`migrations/NNNN_name.sql` holds statements that end in `;` at the end of a line. `{{name}}` stands for
`migrations/fragments/name.sql`. What was applied is in `schema_migrations` with a checksum of the expanded text.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from promptpath.storage.cluster import for_cluster
from promptpath.storage.errors import StorageError

_FOLDER: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_FRAGMENT: Final = re.compile(r"\{\{(\w+)\}\}")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
#: Null tables where requests enter. While one is detached, inserts fail and are sent again: none goes past a view.
_DOORS: Final = ("otlp_traces", "otlp_logs", "otlp_metrics")
_NEW_QUERY: Final = re.compile(r"ALTER TABLE (\w+)\s+MODIFY QUERY\b")
LEDGER: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32,
    name String,
    checksum String,
    applied_at DateTime64(9, 'UTC') DEFAULT now64(9)
)
ENGINE = MergeTree
ORDER BY version
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
""".strip()


@dataclass(frozen=True)
class Migration:
    """One step of the schema: its number, name, statements, and the SHA-256 of its expanded text."""

    version: int
    name: str
    statements: tuple[str, ...]
    checksum: str

    def script(self, cluster: str = "", database: str = "") -> list[str]:
        """The statements as they are sent, on a single server or on a cluster. Repeating them does no harm."""
        made = for_cluster(self.statements, cluster, database) if cluster else self.statements
        return [_repeatable(statement) for statement in made]


@lru_cache(maxsize=1)
def migrations() -> tuple[Migration, ...]:
    """All migrations that this release knows, in order."""
    found = []
    for path in sorted(_FOLDER.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise StorageError(f"{path.name} is no migration: name it NNNN_name.sql")
        text = _expand(path.read_text())
        statements = tuple(part.strip() for part in re.split(r";\s*(?:\n|\Z)", _COMMENT.sub("", text)) if part.strip())
        statements = _with_views_read_anew(statements)
        found.append(Migration(int(match[1]), match[2], statements, hashlib.sha256(text.encode()).hexdigest()))
    numbers = [migration.version for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise StorageError(f"migrations are not numbered 1 to {len(found)} without gaps: rename them")
    return tuple(found)


def ledger(cluster: str = "", database: str = "") -> str:
    """The statement that makes `schema_migrations`."""
    return for_cluster([LEDGER], cluster, database)[0] if cluster else LEDGER


def _expand(text: str) -> str:
    while _FRAGMENT.search(text):
        text = _FRAGMENT.sub(lambda match: (_FOLDER / "fragments" / f"{match[1]}.sql").read_text().rstrip("\n"), text)
    return text


def _with_views_read_anew(statements: tuple[str, ...]) -> tuple[str, ...]:
    """Views whose query changed are detached and attached again.

    Until then the engine names their blocks otherwise than after its next start, and a batch that is sent again after
    that start would be stored twice, although its token is the same. (Seen with ClickHouse 26.9.) SYNC, for a table
    that an insert still uses cannot be attached.
    """
    views = dict.fromkeys(match[1] for statement in statements if (match := _NEW_QUERY.match(statement)))
    if not views:
        return statements
    opened = tuple(f"ATTACH TABLE IF NOT EXISTS {door}" for door in _DOORS)
    return (
        *opened,  # a run that was cut short may have left them closed
        *(f"ATTACH TABLE IF NOT EXISTS {view}" for view in views),
        *statements,
        *(f"DETACH TABLE IF EXISTS {door} SYNC" for door in _DOORS),
        *(
            statement
            for view in views
            for statement in (f"DETACH TABLE IF EXISTS {view} SYNC", f"ATTACH TABLE IF NOT EXISTS {view}")
        ),
        *opened,
    )


def _repeatable(statement: str) -> str:
    return re.sub(
        r"^CREATE (TABLE|VIEW|MATERIALIZED VIEW|DICTIONARY) (?!IF NOT EXISTS)", r"CREATE \1 IF NOT EXISTS ", statement
    )
