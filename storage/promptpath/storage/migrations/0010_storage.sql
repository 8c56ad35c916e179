-- What each table takes on disk, for `promptpath storage status` and whoever asks in SQL: readers may see this view, not
-- the system tables behind it.
CREATE VIEW storage_tables AS
SELECT
    database,
    t.name AS table,
    p.parts AS parts,
    p.partitions AS partitions,
    p.rows AS rows,
    p.bytes_compressed AS bytes_compressed,
    p.bytes_uncompressed AS bytes_uncompressed,
    p.bytes_on_disk AS bytes_on_disk,
    extract(t.engine_full, ' TTL (.+?)(?: SETTINGS |$)') AS ttl
FROM
(
    SELECT database, name, engine_full
    FROM system.tables
    WHERE engine LIKE '%MergeTree' AND database IN (SELECT database FROM system.tables WHERE name = 'schema_migrations')
) AS t
LEFT JOIN
(
    SELECT
        database,
        table AS name,
        count() AS parts,
        uniqExact(partition_id) AS partitions,
        sum(rows) AS rows,
        sum(data_compressed_bytes) AS bytes_compressed,
        sum(data_uncompressed_bytes) AS bytes_uncompressed,
        sum(bytes_on_disk) AS bytes_on_disk
    FROM system.parts
    WHERE active
    GROUP BY database, name
) AS p USING (database, name);
