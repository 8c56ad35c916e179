    (leaf -> multiIf(
        leaf.value = 'string_value', toJSONString(leaf.string_value),
        leaf.value = 'int_value', toString(leaf.int_value),
        leaf.value = 'bool_value', toString(leaf.bool_value),
        leaf.value = 'double_value', toJSONString(leaf.double_value),
        leaf.value = 'bytes_value', toJSONString(base64Encode(leaf.bytes_value)),
        leaf.value = 'none', 'null',
        -- Not lost in silence: ingest turns the value into JSON text and inserts again.
        toString(throwIf(leaf.value IN ('array_value', 'kvlist_value'), 'OTLP value nested too deep')))) AS leaf_json,
    (v -> multiIf(
        v.value = 'string_value', v.string_value,
        v.value = 'int_value', toString(v.int_value),
        v.value = 'bool_value', toString(v.bool_value),
        v.value = 'double_value', toString(v.double_value),
        v.value = 'array_value', concat('[', arrayStringConcat(arrayMap(e -> leaf_json(e), v.array_value.values), ','), ']'),
        v.value = 'kvlist_value', concat('{', arrayStringConcat(
            arrayMap(e -> concat(toJSONString(e.key), ':', leaf_json(e.value)), v.kvlist_value.values), ','), '}'),
        v.value = 'bytes_value', base64Encode(v.bytes_value),
        '')) AS value_text,
    (attributes -> CAST(
        mapFromArrays(attributes.key, arrayMap(v -> value_text(v), attributes.value)),
        'Map(LowCardinality(String), String)')) AS to_map,
    (ns -> fromUnixTimestamp64Nano(toInt64(ns))) AS to_time,
    (id -> lower(hex(id))) AS to_hex
