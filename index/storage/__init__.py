"""Durable storage: the log of a stream, its checkpoints, its cold tuples, and the manifest."""
