"""Engines that live in an environment of their own: each is driven by a script there, which says what it saw."""
