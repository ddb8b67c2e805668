"""Health and reflection, asked as the tools of others ask them."""

import asyncio

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from promising.server import reflection, service
from promising.server.service import SERVICES, Service
from promising.settings import Settings
from promising.testing.service import running
from promising.v1 import admin_pb2, queries_pb2, streams_pb2, summaries_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
OK = grpc.StatusCode.OK
ENDED = (OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What a call gets while the service closes: an answer, a refusal, or gRPC's own CANCELLED if it arrives just then."""
PATIENCE = 120  # seconds after which something hangs; no measure of anything


def test_every_service_of_the_contract_is_served():
    known = {
        service.full_name
        for module in (admin_pb2, queries_pb2, streams_pb2, summaries_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert set(SERVICES) == known


# --- health ------------------------------------------------------------------------------------------------------


def test_health_tells_of_the_whole_and_of_each_service():
    with running() as target, grpc.insecure_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", *SERVICES):
            assert health.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE).status == SERVING
        with pytest.raises(grpc.RpcError) as problem:
            health.Check(health_pb2.HealthCheckRequest(service="promising.v1.NoService"), timeout=PATIENCE)
        assert problem.value.code() is grpc.StatusCode.NOT_FOUND


def test_health_says_not_serving_while_the_service_ends(monkeypatch):
    """Watchers are notified first, and not awaited; a new call is answered or refused."""
    monkeypatch.setattr(service, "LAST_FRAMES", PATIENCE / 4)  # those that read are told, however busy the machine is

    async def drained() -> None:
        made = Service(Settings(listen="127.0.0.1:0"))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await made.start()}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watches = [
                health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE)
                for name in ("", *SERVICES) * 2  # those of one service are told one after the other
            ]
            assert [(await watch.read()).status for watch in watches] == [SERVING] * len(watches)
            stopping = asyncio.create_task(made.stop(grace=PATIENCE))
            assert [(await watch.read()).status for watch in watches] == [NOT_SERVING] * len(watches)
            check = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            assert await check.code() in ENDED and (await check.code() is not OK or (await check).status == NOT_SERVING)
            await asyncio.wait_for(stopping, PATIENCE / 2)
            assert [await watch.code() for watch in watches] == [grpc.StatusCode.UNAVAILABLE] * len(watches)
            assert {await watch.details() for watch in watches} == {"the service is shutting down"}

    asyncio.run(drained())


# --- reflection --------------------------------------------------------------------------------------------------


def test_reflection_lists_every_service_and_describes_it():
    with running() as target, grpc.insecure_channel(target) as channel:
        told = ProtoReflectionDescriptorDatabase(channel)
        services = set(told.get_services())
        assert services == {*SERVICES, "grpc.health.v1.Health", reflection.V1, reflection.V1ALPHA}
        pool = DescriptorPool(told)
        for name in services:
            assert pool.FindServiceByName(name).methods
        ingest = pool.FindMethodByName("promising.v1.StreamService.Ingest")
        assert [field.name for field in ingest.input_type.fields] == list(
            streams_pb2.IngestRequest.DESCRIPTOR.fields_by_name
        )
        with pytest.raises(KeyError):
            pool.FindServiceByName("promising.v1.NoService")


def test_reflection_speaks_v1_as_the_tools_of_today_do():
    method = f"/{reflection.V1}/ServerReflectionInfo"
    ask = reflection_pb2.ServerReflectionRequest
    with running() as target, grpc.insecure_channel(target) as channel:
        call = channel.stream_stream(method, ask.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString)
        asked = [ask(list_services=""), ask(file_containing_symbol="promising.v1.AdminService"), ask()]
        listed, file, nothing = call(iter(asked), timeout=PATIENCE)
    assert set(SERVICES) <= {service.name for service in listed.list_services_response.service}
    names = [FileDescriptorProto.FromString(raw).name for raw in file.file_descriptor_response.file_descriptor_proto]
    assert admin_pb2.DESCRIPTOR.name in names
    assert nothing.error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


def test_reflection_can_be_turned_off():
    settings = Settings(listen="127.0.0.1:0", reflection=False)
    with running(settings) as target, grpc.insecure_channel(target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as problem:
            list(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")])))
        assert problem.value.code() is grpc.StatusCode.UNIMPLEMENTED
