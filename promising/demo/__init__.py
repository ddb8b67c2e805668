"""`make demo`: a service over a retail log, queries, and a page of pictures."""
