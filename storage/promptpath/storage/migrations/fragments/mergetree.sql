index_granularity = 8192, non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
