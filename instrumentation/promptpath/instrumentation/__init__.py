"""What runs inside the user's processes."""
