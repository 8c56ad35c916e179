"""The collector: receives OTLP, keeps it safe, writes it to storage, serves storage to everyone else.

`promptpath.collector.service.Collector` is the whole of it in one process.
"""
