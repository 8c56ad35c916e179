"""Slow and plain: what the fast code must agree with."""
