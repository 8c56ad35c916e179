"""A folder to put on `PYTHONPATH`: its `sitecustomize` makes a Python program instrument itself."""
