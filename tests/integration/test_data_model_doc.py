"""docs/data-model.md names every column of every table and view, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from promptpath.storage import connect, migrate

DOC = (Path(__file__).resolve().parents[2] / "docs" / "data-model.md").read_text()
# The metrics tables share their first columns, described once.
SHARED = "otel_metrics_gauge"


def described() -> dict[str, set[str]]:
    tables: dict[str, set[str]] = {}
    for section in re.split(r"^## ", DOC, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        cells = re.findall(r"^\| (`[^|]*`) \|", body, flags=re.MULTILINE)
        tables[title.strip()] = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    return tables


def test_every_column_is_described(tmp_path: Path) -> None:
    client = connect(f"chdb://{tmp_path}/store")
    try:
        migrate(client)
        rows = client.query(
            "SELECT table, name FROM system.columns WHERE database = currentDatabase()"
            " AND NOT (table LIKE '%\\_rows' OR table LIKE '%\\_mv' OR table LIKE 'otlp\\_%')"
        ).result_rows
    finally:
        client.close()
    stored: dict[str, set[str]] = {}
    for table, name in rows:
        stored.setdefault(table, set()).add(name)

    told = described()
    for table in told:
        if table.startswith("otel_metrics_") and table != SHARED:
            told[table] |= told[SHARED] & stored[table]
    assert told == stored
