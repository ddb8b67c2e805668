"""The same work on what a user would otherwise use: one script for each peer, one driver for all."""
