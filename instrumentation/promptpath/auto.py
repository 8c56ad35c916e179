"""`import promptpath.auto`: all that a program needs to be seen.

Sets up OpenTelemetry from the standard `OTEL_*` variables unless the program has done so, and has every shim act when
its library is imported, before or after this. Never raises.
"""

from __future__ import annotations

import logging

try:
    from promptpath.instrumentation.bootstrap import configure

    configure()
except Exception as error:  # an OpenTelemetry that is too old, or broken: the program runs on without us
    logging.getLogger("promptpath").warning("promptpath: the program runs without it: %s", error)
