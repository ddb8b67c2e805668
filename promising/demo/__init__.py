"""`make demo`: a service over a retail log, questions to it, and a page of pictures."""
