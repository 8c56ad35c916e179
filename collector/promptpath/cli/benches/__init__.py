"""What `promptpath bench NAME` can measure: one module a name, each with `run(options) -> Result`."""
