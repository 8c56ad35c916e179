    -- A letter a value: n(one) s(tring) b(ool) i(nt) d(ouble) [list] {map} x(bytes); lists and maps of one kind have one letter.
    (leaf -> substring('nsbid??x', toUInt8(leaf.value) + 1, 1)) AS leaf_type,
    (letters -> if(length(arrayDistinct(letters)) = 1, letters[1], arrayStringConcat(letters))) AS short_types,
    (v -> multiIf(
        v.value = 'array_value', concat('[', short_types(arrayMap(e -> leaf_type(e), v.array_value.values)), ']'),
        v.value = 'kvlist_value', concat('{', short_types(arrayMap(e -> leaf_type(e.value), v.kvlist_value.values)), '}'),
        substring('nsbid??x', toUInt8(v.value) + 1, 1))) AS value_type,
    -- Empty where all are strings; what lists and maps hold is only looked at where there are any.
    (attributes -> multiIf(
        arrayAll(x -> x = 'string_value', attributes.value.value), '',
        arrayExists(x -> x IN ('array_value', 'kvlist_value'), attributes.value.value),
            arrayStringConcat(arrayMap(v -> value_type(v), attributes.value)),
        arrayStringConcat(arrayMap(x -> substring('nsbid??x', toUInt8(x) + 1, 1), attributes.value.value)))) AS types_of
