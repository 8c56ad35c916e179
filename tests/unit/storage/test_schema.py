"""The migration files themselves."""

from __future__ import annotations

import re

import pyarrow as pa

from promptpath.semconv import Part
from promptpath.storage.limits import READER_LIMITS, reader_settings
from promptpath.storage.rows import PROMPTS_SCHEMA
from promptpath.storage.schema import migrations


def test_numbered_without_gaps_and_expanded() -> None:
    found = migrations()
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    for migration in found:
        assert re.fullmatch(r"[0-9a-f]{64}", migration.checksum)
        for statement in migration.statements:
            assert "{{" not in statement
            assert re.match(
                r"(CREATE (TABLE|VIEW|OR REPLACE VIEW|MATERIALIZED VIEW)"
                r"|ALTER TABLE \w+ (ADD COLUMN IF NOT EXISTS|MODIFY (COLUMN|QUERY|SETTING))"
                r"|DETACH TABLE IF EXISTS|ATTACH TABLE IF NOT EXISTS)\s",
                statement,
            ), statement[:80]


def test_every_mergetree_drops_repeated_blocks_and_is_durable() -> None:
    for migration in migrations():
        for statement in migration.statements:
            if re.search(r"ENGINE = \w*MergeTree", statement):
                for setting in ("non_replicated_deduplication_window = 1000", "fsync_after_insert = 1"):
                    assert setting in statement, statement.split("\n", 1)[0]


def test_prompts_schema_matches_the_table() -> None:
    (table,) = (s for m in migrations() for s in m.statements if s.startswith("CREATE TABLE prompts_rows"))
    nested = re.search(r"segments Nested\s*\((.*?)\) CODEC", table, re.DOTALL)
    assert nested is not None
    inner = [line.split()[0] for line in nested[1].split("\n") if line.strip()]
    flat = table[: nested.start()] + table[nested.end() :]
    names = re.findall(r"^    (\w+) (?:[A-Z])", flat, re.MULTILINE)
    names = [name for name in names if name not in ("INDEX", "is_deleted")]
    at = names.index("gaps_us")
    added = [
        found[1]
        for m in migrations()
        for s in m.statements
        if (found := re.match(r"ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS `?([\w.]+)`? ", s))
    ]
    stored = names[:at] + [f"segments.{name}" for name in inner] + names[at:] + added
    # Whose prompt it is says the insert, not the assembler.
    assert stored == [*PROMPTS_SCHEMA.names, "token_tenant"]


def test_prompts_schema_has_all_parts_in_their_order() -> None:
    parts = [name for name in PROMPTS_SCHEMA.names if name in {f"ttft_{part}_ns" for part in Part}]
    assert parts == [f"ttft_{part}_ns" for part in Part]
    assert all(PROMPTS_SCHEMA.field(name).type == pa.int64() for name in parts)


def test_reader_settings_end_with_readonly() -> None:
    settings = reader_settings({"max_execution_time": 5, "readonly": 0})
    assert list(settings)[-1] == "readonly"
    assert settings["readonly"] == "1"
    assert settings["max_execution_time"] == "5"
    for bound in ("max_result_rows", "max_result_bytes", "max_execution_time", "max_memory_usage"):
        assert bound in READER_LIMITS
