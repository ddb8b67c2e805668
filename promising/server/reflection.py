"""Reflection: which calls there are, told to clients that ask, in both versions of its protocol.

The library speaks v1alpha; the tools of today ask for v1 first. The two differ in the name of the package alone, so one
servicer answers both.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

V1ALPHA: str = reflection.SERVICE_NAME
V1 = V1ALPHA.replace("v1alpha", "v1")


def add(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Tell of these services, and of reflection itself."""
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
    """The description of v1."""
    old = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(old)
    text = text_format.MessageToString(old).replace("v1alpha", "v1")
    return text_format.Parse(text, FileDescriptorProto())


def _know_v1() -> None:
    """Have a description of v1 to give to those who ask about all that they are told of."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(V1)
    except KeyError:
        pool.AddSerializedFile(v1().SerializeToString())
