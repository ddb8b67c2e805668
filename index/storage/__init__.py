"""What is kept on disk: the log of a stream, its checkpoints, its cold tuples, and what there is."""
