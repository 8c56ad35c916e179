"""What a person sees of Promptpath in a browser: Streamlit pages over named, bounded queries."""
