"""One module a page. A page asks `data`, hands the answer to a chart builder, and lays out the result.

Not called `pages`: Streamlit would take a folder of that name beside app.py for pages of its own, without `app`.
"""
