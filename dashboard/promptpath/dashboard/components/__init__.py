"""Parts of a page that Streamlit has no widget for."""
