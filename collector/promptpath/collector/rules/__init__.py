"""Rules: one TOML file a system, saying what its spans mean. `promptpath.collector.assemble.rules` reads them."""
