    -- OTLP/JSON of a value from its text and the letters of its kind (see migrations/fragments/types.sql).
    ((text, letter) -> multiIf(
        letter = 's', concat('{"stringValue":', text, '}'),
        letter = 'i', concat('{"intValue":"', text, '"}'),
        letter = 'b', concat('{"boolValue":', text, '}'),
        letter = 'd', concat('{"doubleValue":', if(text = 'null', '"NaN"', text), '}'),
        letter = 'x', concat('{"bytesValue":', text, '}'),
        '{}')) AS leaf_of,
    ((letters, at) -> if(length(letters) = 1, letters, substring(letters, at, 1))) AS letter_at,
    ((text, kind) -> multiIf(
        startsWith(kind, '['), concat('{"arrayValue":{"values":[', arrayStringConcat(arrayMap(
            (element, at) -> leaf_of(element, letter_at(substring(kind, 2, length(kind) - 2), at)),
            JSONExtractArrayRaw(text), arrayEnumerate(JSONExtractArrayRaw(text))), ','), ']}}'),
        startsWith(kind, '{'), concat('{"kvlistValue":{"values":[', arrayStringConcat(arrayMap(
            (pair, at) -> concat('{"key":', toJSONString(pair.1), ',"value":',
                leaf_of(pair.2, letter_at(substring(kind, 2, length(kind) - 2), at)), '}'),
            JSONExtractKeysAndValuesRaw(text), arrayEnumerate(JSONExtractKeysAndValuesRaw(text))), ','), ']}}'),
        kind = 'd', leaf_of(transform(text, ['nan', 'inf', '-inf'], ['"NaN"', '"Infinity"', '"-Infinity"'], text), 'd'),
        kind IN ('s', 'x'), leaf_of(toJSONString(text), kind),
        leaf_of(text, kind))) AS value_of,
    ((attributes, kinds) -> concat('[', arrayStringConcat(arrayMap(
        (key, text, kind) -> concat('{"key":', toJSONString(key), ',"value":', value_of(text, kind), '}'),
        mapKeys(attributes), mapValues(attributes),
        if(empty(kinds), arrayWithConstant(length(attributes), 's'),
            arrayResize(extractAll(kinds, '\\[[a-z]*\\]|\\{[a-z]*\\}|[a-z]'), length(attributes), 's'))), ','), ']')) AS attributes_of,
    ((time) -> toString(reinterpretAsUInt64(toUnixTimestamp64Nano(time)))) AS time_of,
    -- What was sent, where it could not be (see migrations/0014_times.sql).
    ((clamped, sent, text) -> if(clamped = '', text, toString(sent))) AS sent_or,
    ((parts, at, number) -> toUInt32OrZero(splitByChar(',', parts[at])[number])) AS count_of,
    ((value) -> transform(toString(value), ['nan', 'inf', '-inf'], ['"NaN"', '"Infinity"', '"-Infinity"'], toString(value))) AS double_of,
    ((name, value) -> if(value = '', '', concat(',"', name, '":', toJSONString(value)))) AS text_field,
    ((name, value) -> if(value = 0, '', concat(',"', name, '":', toString(value)))) AS number_field
