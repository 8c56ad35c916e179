"""Shims: what makes a library show its stages. One module a system, each undone as completely as it was put on."""
