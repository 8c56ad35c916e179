"""A small but real serving stack on loopback: gateway, router, two inference servers, and a client that loads them.

Each runs in its own process, is instrumented exactly as a user's program would be, and knows nothing of Promptpath
beyond that. `promptpath demo` starts them all.
"""
