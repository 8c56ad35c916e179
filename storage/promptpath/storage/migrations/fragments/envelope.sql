                -- Without an envelope: received now, and times from 2000 to 2099 can be (promptpath.storage.ingest).
                if(empty(envelope), toUInt64(toUnixTimestamp64Nano(now64(9))), envelope[1]) AS received_ns,
                if(empty(envelope), toUInt64(946684800000000000), envelope[2]) AS oldest_ns,
                -- An older collector says no newest: a day after it received them.
                multiIf(
                    empty(envelope), toUInt64(4102444799999999999), length(envelope) = 2, envelope[1] + 86400000000000,
                    envelope[3]) AS newest_ns
