"""Hide what is found, and give it back."""
