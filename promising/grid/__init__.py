"""The value x time grid of a summary: as numbers, as text for the terminal, as a picture."""
