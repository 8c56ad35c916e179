ENGINE = MergeTree
PARTITION BY toDate(TimeUnix, 'UTC')
-- One metric over hours, and all metrics of a few seconds, both read few granules.
ORDER BY (MetricName, toStartOfMinute(TimeUnix), ServiceName, cityHash64(Attributes), TimeUnix)
SETTINGS ttl_only_drop_parts = 1, {{mergetree}}
