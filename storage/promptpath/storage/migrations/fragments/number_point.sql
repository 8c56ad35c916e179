attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, value Enum8('none' = 0, 'as_double' = 4, 'as_int' = 6), as_double Float64, as_int Int64, {{exemplar}}, flags UInt32
