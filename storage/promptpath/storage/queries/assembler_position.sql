SELECT toUnixTimestamp64Nano(position) FROM assembler_state WHERE name = {name:String}
