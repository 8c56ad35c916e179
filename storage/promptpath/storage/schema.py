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


def _repeatable(statement: str) -> str:
    return re.sub(
        r"^CREATE (TABLE|VIEW|MATERIALIZED VIEW|DICTIONARY) (?!IF NOT EXISTS)", r"CREATE \1 IF NOT EXISTS ", statement
    )
