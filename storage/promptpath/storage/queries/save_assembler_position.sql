INSERT INTO assembler_state_rows (name, position) SELECT {name:String}, fromUnixTimestamp64Nano({position_ns:Int64}, 'UTC')
