"""Standing queries: views over sliding windows, maintained incrementally tuple by tuple."""
