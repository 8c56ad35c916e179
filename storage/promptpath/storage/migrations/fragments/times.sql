    -- Products, not AND: what is evaluated only where it must be is copied first, here with all that a row has.
    ((ns, oldest, newest) -> toUInt8((ns >= oldest) * (ns <= newest))) AS can_be,
    -- By whole days into the one that ends an hour after the batch was received: what one wrong clock said keeps its order.
    ((ns, received) -> toUInt64(received + 3600000000000
        - ((received + 3600000000000) % 86400000000000 + 86400000000000 - ns % 86400000000000) % 86400000000000)) AS moved
