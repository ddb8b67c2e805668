"""The service: calls in, answers out, over gRPC."""
