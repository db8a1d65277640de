# Calls Envoy's rate limit service with grpcio, as it finds it by reflection. Argument: the address.
# Prints a line for each call: the code, and what the first status says.
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
print("services", *sorted(database.get_services()))
pool = DescriptorPool(database)
SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
Request, Response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
call = channel.unary_unary(
    f"/{SERVICE}/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)


def ask(name, domain, *descriptors, hits=0, **options):
    request = Request(domain=domain, hits_addend=hits)
    for entries in descriptors:
        descriptor = request.descriptors.add(**options)
        for key, value in entries.items():
            descriptor.entries.add(key=key, value=value)
    answer = call(request, timeout=60)
    code = Response.Code.Name(answer.overall_code)
    print(name, code, *(f"{Response.Code.Name(status.code)}:{status.limit_remaining}" for status in answer.statuses))
    return answer


for number in range(6):
    answer = ask(f"single-{number}", "api", {"x-api-key": "alice"})
fields = {field.key.lower() for field in answer.response_headers_to_add}
print("fields", *sorted(fields))
limit = answer.statuses[0].current_limit
print("limit", limit.requests_per_unit, limit.Unit.Name(limit.unit))
print("reset", 0 < answer.statuses[0].duration_until_reset.seconds <= 86_400)
ask("three", "api", {"x-api-key": "bob"}, hits=3)
ask("three-more", "api", {"x-api-key": "bob"}, hits=3)
ask("two", "api", {"x-api-key": "bob"}, hits=2)
ask("both", "api", {"x-api-key": "bob"}, {"x-api-key": "carol"})
ask("carol", "api", {"x-api-key": "carol"}, hits=5)
ask("unknown", "api", {"no-such-entry": "x"})
health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
print("health", health_pb2.HealthCheckResponse.ServingStatus.Name(health.status))
