"""Standing queries: views over sliding windows that are kept up to date tuple by tuple."""
