"""Spark: bulk history and streaming sinks into the index. This floor holds no code yet."""
