"""One module a page. A page asks `data`, hands the answer to a chart builder, and lays out the result."""
