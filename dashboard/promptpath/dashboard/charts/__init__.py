"""Chart builders: pure functions from data to an Altair chart. None of them reads storage or Streamlit."""
