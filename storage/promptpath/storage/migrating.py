"""Brings a database to this release's schema: each migration once, whoever runs it, and never over another schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from promptpath.storage import migration_lock
from promptpath.storage.errors import StorageError, reason
from promptpath.storage.schema import Migration, ledger, migrations

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_RECORD: Final = """
INSERT INTO schema_migrations (version, name, checksum)
SELECT {version:UInt32}, {name:String}, {checksum:String}
"""


def migrate(client: Client, *, cluster: str = "", dry_run: bool = False) -> list[Migration]:
    """Brings the client's database to this release's schema.

    Args:
        client: a client that may write.
        cluster: the cluster to spread the schema over, by name or as a macro (`{cluster}`).
        dry_run: only say what would be applied.

    Returns:
        The migrations that were applied (or would be), in order; none if the schema is up to date.

    Raises:
        StorageError: an applied migration differs from this release's, the store is of a newer release, others migrate
            it for too long, or a statement failed.
    """
    waiting = pending(client)
    if dry_run or not waiting:
        return waiting
    try:
        database = str(client.command("SELECT currentDatabase()"))
        with migration_lock.held(client, cluster=cluster) as lock:
            client.command(ledger(cluster, database))
            if cluster:
                client.command("SYSTEM SYNC REPLICA schema_migrations")
            waiting = pending(client)
            for migration in waiting:
                _apply(client, migration, cluster, database, lock)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"cannot write the schema ({reason(error)}): open the store without `readonly`") from error
    return waiting


def pending(client: Client) -> list[Migration]:
    """The migrations that the client's database lacks, in order.

    Raises:
        StorageError: its schema is of a newer release, or differs from this one's.
    """
    applied = applied_versions(client)
    _check(migrations(), applied)
    return [migration for migration in migrations() if migration.version not in applied]


def applied_versions(client: Client) -> dict[int, str]:
    """Checksums of the migrations that were applied, by version."""
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


def _apply(client: Client, migration: Migration, cluster: str, database: str, lock: migration_lock.Held) -> None:
    for statement in migration.script(cluster, database):
        lock.touch()
        try:
            client.command(statement)
        except Exception as error:
            raise StorageError(
                f"migration {migration.version:04d}_{migration.name} failed: {reason(error)}; "
                "once that is put right, migrate again: it goes on from there"
            ) from error
    lock.touch()
    client.command(
        _RECORD,
        parameters={"version": migration.version, "name": migration.name, "checksum": migration.checksum},
        settings={"insert_deduplication_token": f"migration-{migration.version}"},
    )
