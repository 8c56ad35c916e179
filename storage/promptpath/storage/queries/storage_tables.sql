SELECT table, parts, partitions, rows, bytes_compressed, bytes_uncompressed, bytes_on_disk, ttl
FROM storage_tables
WHERE database = currentDatabase()
ORDER BY bytes_compressed DESC, table
