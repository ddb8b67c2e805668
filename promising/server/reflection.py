"""Server reflection, in both versions of its protocol.

The library supports v1alpha; current tools request v1 first. They differ only in the package name, so one servicer
serves both.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

V1ALPHA: str = reflection.SERVICE_NAME
V1 = V1ALPHA.replace("v1alpha", "v1")


def add(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Register these services, and reflection itself."""
    _know_v1()
    # It is in `__all__`, but under a condition that mypy does not follow.
    aio = reflection.aio  # type: ignore[attr-defined]
    servicer = aio.ReflectionServicer([*services, V1, V1ALPHA])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    own = grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": handler})
    server.add_generic_rpc_handlers((own,))


def v1() -> FileDescriptorProto:
    """The file descriptor of v1."""
    old = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(old)
    text = text_format.MessageToString(old).replace("v1alpha", "v1")
    return text_format.Parse(text, FileDescriptorProto())


def _know_v1() -> None:
    """Register the descriptor of v1, for clients that request every listed service."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(V1)
    except KeyError:
        pool.AddSerializedFile(v1().SerializeToString())
