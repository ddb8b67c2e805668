"""The front door: what a user of the house touches first."""
