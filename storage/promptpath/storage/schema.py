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
from typing import TYPE_CHECKING, Final

from promptpath.storage.errors import StorageError, reason

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_FOLDER: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_FRAGMENT: Final = re.compile(r"\{\{(\w+)\}\}")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
_LEDGER: Final = """
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
"""


@dataclass(frozen=True)
class Migration:
    """One step of the schema: its number, name, statements, and the SHA-256 of its expanded text."""

    version: int
    name: str
    statements: tuple[str, ...]
    checksum: str


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


def _expand(text: str) -> str:
    while _FRAGMENT.search(text):
        text = _FRAGMENT.sub(lambda match: (_FOLDER / "fragments" / f"{match[1]}.sql").read_text().rstrip("\n"), text)
    return text


def migrate(client: Client, *, dry_run: bool = False) -> list[Migration]:
    """Brings the client's database to this release's schema.

    Args:
        client: a client that may write.
        dry_run: only say what would be applied.

    Returns:
        The migrations that were applied (or would be), in order; none if the schema is up to date.

    Raises:
        StorageError: an applied migration differs from this release's, the store is of a newer release, or a statement
            failed.
    """
    known = migrations()
    applied = _applied(client)
    _check(known, applied)
    pending = [migration for migration in known if migration.version not in applied]
    if dry_run or not pending:
        return pending
    try:
        client.command(_LEDGER)
    except Exception as error:
        raise StorageError(f"cannot write the schema ({reason(error)}): open the store without `readonly`") from error
    return [migration for migration in pending if _apply(client, migration)]


def _applied(client: Client) -> dict[int, str]:
    exists = client.command("EXISTS TABLE schema_migrations")
    if int(str(exists)) == 0:
        return {}
    rows = client.query("SELECT version, checksum FROM schema_migrations ORDER BY version").result_rows
    return {int(version): str(checksum) for version, checksum in rows}


def _check(known: tuple[Migration, ...], applied: dict[int, str]) -> None:
    newest = max(applied, default=0)
    if newest > len(known):
        raise StorageError(
            f"the store has schema version {newest}, this release knows {len(known)}: "
            "upgrade promptpath, or use another store"
        )
    for migration in known:
        if migration.version in applied and applied[migration.version] != migration.checksum:
            raise StorageError(
                f"migration {migration.version:04d}_{migration.name} differs from what was applied to this store: "
                "install the release that made it, or use another store"
            )


def _apply(client: Client, migration: Migration) -> bool:
    """Applies one migration; False if another process did meanwhile. Statements are safe to repeat after a crash."""
    for statement in migration.statements:
        try:
            client.command(_repeatable(statement))
        except Exception as error:
            raise StorageError(
                f"migration {migration.version:04d}_{migration.name} failed: {reason(error)}; "
                "once that is put right, migrate again: it goes on from there"
            ) from error
    if migration.version in _applied(client):
        return False
    client.command(
        "INSERT INTO schema_migrations (version, name, checksum) "
        "SELECT {version:UInt32}, {name:String}, {checksum:String}",
        parameters={"version": migration.version, "name": migration.name, "checksum": migration.checksum},
        settings={"insert_deduplication_token": f"migration-{migration.version}"},
    )
    return True


def _repeatable(statement: str) -> str:
    return re.sub(
        r"^CREATE (TABLE|VIEW|MATERIALIZED VIEW|DICTIONARY) (?!IF NOT EXISTS)", r"CREATE \1 IF NOT EXISTS ", statement
    )
